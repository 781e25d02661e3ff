import base64
import datetime
import ipaddress
import stat
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from tests.cluster.certificates import (
    Authority,
    Pair,
    kubeconfig,
    service_account_keys,
    write_private,
)

NOW = datetime.datetime(2031, 5, 6, 7, 8, tzinfo=datetime.UTC)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority("test", NOW)


def trust(authority: Authority, at: datetime.datetime = NOW) -> PolicyBuilder:
    store = Store([x509.load_pem_x509_certificate(authority.certificate)])
    return PolicyBuilder().store(store).time(at)


def certificate(pair: Pair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pair.certificate)


@pytest.mark.parametrize("host", ["127.0.0.1", "10.96.0.1", "localhost", "kubernetes.default.svc"])
def test_server_is_trusted_under_each_of_its_names(authority: Authority, host: str) -> None:
    pair = authority.server("api", ["127.0.0.1", "10.96.0.1", "localhost", "kubernetes.default.svc"])
    subject: x509.general_name.GeneralName
    try:
        subject = x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        subject = x509.DNSName(host)
    trust(authority).build_server_verifier(subject).verify(certificate(pair), [])


def test_server_is_not_trusted_elsewhere(authority: Authority) -> None:
    pair = authority.server("api", ["localhost"])
    verifier = trust(authority).build_server_verifier(x509.DNSName("example.test"))
    with pytest.raises(VerificationError):
        verifier.verify(certificate(pair), [])
    stranger = Authority("test", NOW)
    verifier = trust(stranger).build_server_verifier(x509.DNSName("localhost"))
    with pytest.raises(VerificationError):
        verifier.verify(certificate(pair), [])


def test_validity_reaches_from_an_hour_before_to_a_year_after(authority: Authority) -> None:
    signed = certificate(authority.client("user"))
    assert signed.not_valid_before_utc == NOW - datetime.timedelta(hours=1)
    assert signed.not_valid_after_utc == NOW + datetime.timedelta(days=365)


def test_client_carries_user_and_group(authority: Authority) -> None:
    subject = certificate(authority.client("admin", "system:masters")).subject
    assert [a.value for a in subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["admin"]
    assert [a.value for a in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)] == ["system:masters"]


def test_client_may_not_serve(authority: Authority) -> None:
    signed = certificate(authority.client("admin"))
    usage = signed.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]
    assert not signed.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_keys_belong_to_their_certificates(authority: Authority) -> None:
    for pair in (authority.pair, authority.client("user"), authority.server("api", ["localhost"])):
        key = serialization.load_pem_private_key(pair.key, None)
        assert key.public_key() == certificate(pair).public_key()
    private, public = service_account_keys()
    assert serialization.load_pem_private_key(private, None).public_key() == (
        serialization.load_pem_public_key(public)
    )


def test_kubeconfig_carries_everything_it_needs(authority: Authority) -> None:
    client = authority.client("admin")
    document = yaml.safe_load(
        kubeconfig("dev", "https://127.0.0.1:1234", authority.certificate, "me", client)
    )
    assert document["current-context"] == document["contexts"][0]["name"] == "dev"
    assert document["contexts"][0]["context"] == {"cluster": "dev", "user": "me"}
    (cluster,), (user,) = document["clusters"], document["users"]
    assert cluster["cluster"]["server"] == "https://127.0.0.1:1234"
    assert base64.b64decode(cluster["cluster"]["certificate-authority-data"]) == authority.certificate
    assert base64.b64decode(user["user"]["client-key-data"]) == client.key


@pytest.mark.parametrize("existing", [True, False])
def test_private_files_are_private(tmp_path: Path, existing: bool) -> None:
    path = tmp_path / "key"
    if existing:
        path.write_text("something longer than what follows")
        path.chmod(0o644)
    write_private(path, "secret")
    assert path.read_text() == "secret"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
