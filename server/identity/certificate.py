"""When the server's certificate ends."""

from pathlib import Path

from server.config import ConfigError


def first_expiry(chain: Path) -> float:
    """When the first certificate of a PEM file to end does so, in seconds since the epoch. Raises ConfigError."""
    from cryptography.x509 import load_pem_x509_certificates  # a server without TLS starts without it

    try:
        certificates = load_pem_x509_certificates(chain.read_bytes())
    except ValueError as error:
        raise ConfigError(
            f"tls_certificate {chain} has a certificate that cannot be read: {error}; "
            f"if it is one that OpenSSL calls trusted, write it anew with openssl x509 -in {chain} -out FILE"
        ) from error
    return min(certificate.not_valid_after_utc.timestamp() for certificate in certificates)
