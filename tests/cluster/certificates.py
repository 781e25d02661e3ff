"""The cluster's certificate authority, the certificates it signs, and kubeconfig files that carry them.

Keys are ECDSA P-256, which Kubernetes takes everywhere (service account tokens included) and which are
made in no time. Everything ends with the cluster: validity is a year, nothing is renewed.
"""

import base64
import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALIDITY = datetime.timedelta(days=365)
# A clock set back by a few minutes after the start must not make the cluster unusable.
BACKDATED = datetime.timedelta(hours=1)


@dataclass(frozen=True)
class Pair:
    """A private key and its certificate, both PEM."""

    key: bytes
    certificate: bytes


class Authority:
    """A certificate authority that lives in memory; only what it signs is written."""

    def __init__(self, name: str, now: datetime.datetime) -> None:
        self._now = now
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        self._certificate = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )

    @property
    def certificate(self) -> bytes:
        """The authority's own certificate, PEM."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def pair(self) -> Pair:
        """The authority's key and certificate, for components that sign requests themselves."""
        return Pair(key_pem(self._key), self.certificate)

    def server(self, name: str, hosts: Sequence[str]) -> Pair:
        """A server's certificate for host names and IP addresses."""
        alternatives = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        return self._sign(name, None, ExtendedKeyUsageOID.SERVER_AUTH, alternatives)

    def client(self, user: str, group: str | None = None) -> Pair:
        """A client's certificate: Kubernetes reads the user from CN and the group from O."""
        return self._sign(user, group, ExtendedKeyUsageOID.CLIENT_AUTH, None)

    def _sign(
        self,
        name: str,
        organization: str | None,
        usage: x509.ObjectIdentifier,
        alternatives: x509.SubjectAlternativeName | None,
    ) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = self._key.public_key()
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, name)]
        if organization is not None:
            attributes.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
        builder = (
            self._builder(x509.Name(attributes), key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            # Verifiers that follow RFC 5280 strictly, as Python's from 3.13 on, insist on it.
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer), critical=False)
        )
        if alternatives is not None:
            builder = builder.add_extension(alternatives, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return Pair(key_pem(key), certificate.public_bytes(serialization.Encoding.PEM))

    def _builder(self, subject: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - BACKDATED)
            .not_valid_after(self._now + VALIDITY)
        )


def service_account_keys() -> tuple[bytes, bytes]:
    """A private and a public key (PEM) that sign and verify service account tokens."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return key_pem(key), public


def key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """The key in the PEM form that Go's libraries read."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def kubeconfig(cluster: str, server: str, authority: bytes, user: str, client: Pair) -> str:
    """A kubeconfig (YAML) that carries its certificates, so that the file can be copied anywhere."""
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": cluster,
                    "cluster": {"server": server, "certificate-authority-data": _base64(authority)},
                }
            ],
            "users": [
                {
                    "name": user,
                    "user": {
                        "client-certificate-data": _base64(client.certificate),
                        "client-key-data": _base64(client.key),
                    },
                }
            ],
            "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": user}}],
            "current-context": cluster,
        },
        sort_keys=False,
    )


def write_private(path: Path, content: bytes | str) -> None:
    """Writes a file that only its owner may read."""
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
