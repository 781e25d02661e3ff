# The wattkeeper image: the `wattkeeper` command, of which `wattkeeper operator run` is the chart's container.
#
#   DOCKER_BUILDKIT=1 docker build -t wattkeeper .
#
# Behind a proxy or a mirror (all optional; neither secret ends up in a layer or in the history):
#   --build-arg BASE_IMAGE=mirror.example.com/python:3.11-slim-bookworm   the same base from elsewhere
#   --secret id=pip.conf,src=$HOME/.config/pip/pip.conf                   pip's index, mirror, proxy, trusted hosts
#   --secret id=ca.pem,src=/etc/ssl/certs/ca-certificates.crt             the authorities that pip trusts
#
# BASE_IMAGE has to bring Python 3.11 as `python3`, with the venv module: python:3.11-slim-* does, and so does
# Debian 12 with its packages python3 and python3-venv.
ARG BASE_IMAGE=python:3.11-slim-bookworm


# ---- dependencies: a layer of their own, since they change less often than the product --------------------------
FROM ${BASE_IMAGE} AS dependencies
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
# pip lives in an environment of the build alone and installs into the other, which is shipped without it.
RUN python3 -m venv /opt/build && python3 -m venv --without-pip /opt/wattkeeper
COPY requirements.lock /src/
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca.pem \
    --mount=type=cache,target=/root/.cache/pip \
    if [ -s /run/secrets/ca.pem ]; then export PIP_CERT=/run/secrets/ca.pem; fi; \
    /opt/build/bin/pip --python /opt/wattkeeper/bin/python install \
      --quiet --no-compile --only-binary :all: --require-hashes --requirement /src/requirements.lock
# Left out: what the libraries test themselves with, compile against or describe themselves by, and their commands.
# Licences stay.
# Bytecode is made here, since the root file system is read-only at run time; by content instead of by time stamp, so
# that the same input gives the same files.
RUN cd /opt/wattkeeper/lib/python3*/site-packages \
 && find . -depth -type d \( -name tests -o -name sboms \) -exec rm -r {} + \
 && find . -type f \( -name '*.pyi' -o -name '*.pxd' -o -name '*.h' -o -name '*.a' -o -name '*.c' \) -delete \
 && /opt/wattkeeper/bin/python -m compileall -q --invalidation-mode unchecked-hash . \
 && find /opt/wattkeeper/bin /opt/wattkeeper/include -not -type d -not -name 'python*' -delete


# ---- the product: built as a wheel, installed beside the dependencies -------------------------------------------
FROM dependencies AS product
COPY requirements-build.lock /src/
RUN --mount=type=secret,id=pip.conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca.pem \
    --mount=type=cache,target=/root/.cache/pip \
    if [ -s /run/secrets/ca.pem ]; then export PIP_CERT=/run/secrets/ca.pem; fi; \
    /opt/build/bin/pip install --quiet --require-hashes --requirement /src/requirements-build.lock
COPY pyproject.toml README.md LICENSE /src/
COPY operator /src/operator
COPY predictor /src/predictor
# --prefix collects what the wheel adds, so that the final image gets it as its own small layer.
RUN cd /src \
 && /opt/build/bin/pip wheel --quiet --no-deps --no-build-isolation --no-index --wheel-dir /wheels . \
 && /opt/build/bin/pip --python /opt/wattkeeper/bin/python install \
      --quiet --no-compile --no-deps --no-index --prefix /opt/product /wheels/*.whl \
 && /opt/wattkeeper/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/product \
      -s /opt/product -p /opt/wattkeeper


# ---- the image ---------------------------------------------------------------------------------------------------
FROM ${BASE_IMAGE}
ARG BASE_IMAGE
ARG VERSION=0.1.0
ARG REVISION=""
ARG SOURCE=""
LABEL org.opencontainers.image.title="wattkeeper" \
      org.opencontainers.image.description="Power-aware placement and parking for self-hosted LLMs on Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.base.name="${BASE_IMAGE}"
COPY --from=dependencies /opt/wattkeeper /opt/wattkeeper
COPY --from=product /opt/product /opt/wattkeeper
# USER and HOME stand in for the entry in /etc/passwd that an assigned user id doesn't have.
ENV PATH=/opt/wattkeeper/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    USER=wattkeeper \
    HOME=/tmp
# A number, so that a cluster can check runAsNonRoot; it owns nothing.
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["wattkeeper"]
