import pytest

from tests.cluster.gobuild import duration, is_package


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("internal/goarch\n", True),
        ("unsafe\n", True),
        ("k8s.io/kubernetes/cmd/kube-apiserver\n", True),
        ("gopkg.in/yaml.v3\n", True),
        ("go: downloading k8s.io/api v0.36.3\n", False),
        ("# k8s.io/kubernetes/pkg/x\n", False),
        ("pkg/x.go:12:3: undefined: y\n", False),
        ("\n", False),
    ],
)
def test_lines_of_go_build(line: str, expected: bool) -> None:
    assert is_package(line) is expected


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (551, "9 min 11 s")]
)
def test_duration(seconds: float, text: str) -> None:
    assert duration(seconds) == text
