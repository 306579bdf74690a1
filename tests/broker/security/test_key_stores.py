"""Key stores and trust stores: all forms that are read, and one line for each mistake."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.configs.settings_table import BROKER_SETTINGS
from minibroker.broker.security.key_stores import StoreError, load_key_and_certificates, load_trusted_certificates
from tests.cases import for_each
from tests.certificates import Authority, Signed

PASSWORD = "the secret"
KEYTOOL = ["keytool", "-storepass", PASSWORD, "-keypass", PASSWORD, "-noprompt"]

authority = Authority()
between = Authority("CN=between", authority)
server = between.sign()
other = authority.sign()


def get(**settings: Any) -> Callable[[str], Any]:
    """Return a look-up in these settings, whose names have _ for each dot, and in the defaults."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    assert given.keys() <= BROKER_SETTINGS.keys()
    return lambda name: given.get(name, BROKER_SETTINGS[name].default)


def pem(signed: Signed = server, **more: Any) -> Callable[[str], Any]:
    texts = {"ssl_keystore_key": signed.key_pem(), "ssl_keystore_certificate_chain": signed.certificate_pem}
    return get(**{"ssl_keystore_type": "PEM", **texts, **more})


def stored(path: Path, **more: Any) -> Callable[[str], Any]:
    return get(**{"ssl_keystore_location": str(path), "ssl_keystore_password": PASSWORD, **more})


@pytest.fixture
def pkcs12(tmp_path: Path) -> Path:
    path = tmp_path / "keystore.jks"  # as many are called
    path.write_bytes(server.pkcs12(PASSWORD, authority.own.certificate, between.own.certificate))
    return path


# --- what is read -----------------------------------------------------------------------------------


def test_a_key_store_is_read_from_pem_text() -> None:
    chain = server.certificate_pem + between.pem
    found = load_key_and_certificates(pem(ssl_keystore_certificate_chain=chain))
    assert found.key.private_numbers() == server.key.private_numbers()  # type: ignore[union-attr]
    assert found.chain == (server.certificate, between.own.certificate)


def test_spaces_may_replace_line_ends_as_in_a_properties_file() -> None:
    found = load_key_and_certificates(
        pem(
            ssl_keystore_key=server.key_pem().replace("\n", " "),
            ssl_keystore_certificate_chain=server.certificate_pem.replace("\n", " "),
        )
    )
    assert found.chain == (server.certificate,)


def test_an_encrypted_key_is_read_with_its_password() -> None:
    found = load_key_and_certificates(pem(ssl_keystore_key=server.key_pem(PASSWORD), ssl_key_password=PASSWORD))
    assert found.encode_pem().startswith(b"-----BEGIN PRIVATE KEY-----")


def test_a_key_store_in_pem_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "keystore.pem"
    path.write_text(f"Bag Attributes\n    friendlyName: x\n{server.key_pem(PASSWORD)}{server.certificate_pem}")
    settings = {"ssl_keystore_type": "PEM", "ssl_keystore_password": None, "ssl_key_password": PASSWORD}
    assert load_key_and_certificates(stored(path, **settings)).chain == (server.certificate,)


@pytest.mark.parametrize("kind", ["JKS", "PKCS12", "pkcs12"])
def test_a_pkcs12_key_store_is_read_whatever_its_file_name(pkcs12: Path, kind: str) -> None:
    found = load_key_and_certificates(stored(pkcs12, ssl_keystore_type=kind))
    assert found.chain == (server.certificate, between.own.certificate, authority.own.certificate), "in this order"


def test_a_trust_store_is_read_from_a_text_and_from_a_file(tmp_path: Path) -> None:
    both = (authority.own.certificate, between.own.certificate)
    assert (
        load_trusted_certificates(
            get(ssl_truststore_type="PEM", ssl_truststore_certificates=authority.pem + between.pem)
        )
        == both
    )
    (tmp_path / "ca.pem").write_text(authority.pem + between.pem)
    assert (
        load_trusted_certificates(get(ssl_truststore_type="PEM", ssl_truststore_location=str(tmp_path / "ca.pem")))
        == both
    )
    assert load_trusted_certificates(get()) is None


def test_stores_of_javas_keytool_are_read(tmp_path: Path) -> None:
    keys, trust, ca = tmp_path / "keys.p12", tmp_path / "trust.p12", tmp_path / "ca.pem"
    ca.write_text(authority.pem)
    make = ["-genkeypair", "-alias", "a", "-keyalg", "EC", "-dname", "CN=made by Java", "-keystore", str(keys)]
    subprocess.run([*KEYTOOL, *make], check=True, capture_output=True)
    add = ["-importcert", "-alias", "ca", "-file", str(ca), "-keystore", str(trust)]
    subprocess.run([*KEYTOOL, *add], check=True, capture_output=True)
    assert load_key_and_certificates(stored(keys)).chain[0].subject.rfc4514_string() == "CN=made by Java"
    found = load_trusted_certificates(get(ssl_truststore_location=str(trust), ssl_truststore_password=PASSWORD))
    assert found == (authority.own.certificate,)


# --- JKS, as Java's keytool writes it ---------------------------------------------------------------

KEY_PASSWORD = "of the key"


@pytest.fixture(scope="module")
def jks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the chain of `server`, and with a trusted certificate."""
    folder = tmp_path_factory.mktemp("jks")
    path, source, ca = folder / "keys.jks", folder / "keys.p12", folder / "ca.pem"
    source.write_bytes(server.pkcs12(PASSWORD, between.own.certificate))
    ca.write_text(other.certificate_pem)
    copy = ["-importkeystore", "-srckeystore", source, "-srcstorepass", PASSWORD, "-deststoretype", "JKS"]
    passwords = ["-destkeystore", path, "-deststorepass", PASSWORD, "-destkeypass", KEY_PASSWORD, "-noprompt"]
    alias = ["-srcalias", "it", "-destalias", "broker"]
    subprocess.run(["keytool", *copy, *passwords, *alias], check=True, capture_output=True)
    add = ["-importcert", "-alias", "ca", "-file", str(ca), "-keystore", str(path)]
    subprocess.run([*KEYTOOL, *add], check=True, capture_output=True)
    return path


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_a_jks_key_store_is_read(jks: Path, kind: str) -> None:
    found = load_key_and_certificates(stored(jks, ssl_keystore_type=kind, ssl_key_password=KEY_PASSWORD))
    assert found.key.private_numbers() == server.key.private_numbers()  # type: ignore[union-attr]
    assert found.chain == (server.certificate, between.own.certificate)


@pytest.mark.parametrize("password", [PASSWORD, None])
def test_a_jks_trust_store_is_read(jks: Path, password: str | None) -> None:
    found = load_trusted_certificates(get(ssl_truststore_location=str(jks), ssl_truststore_password=password))
    assert found == (other.certificate, server.certificate)


def test_an_rsa_key_is_read_from_jks(tmp_path: Path) -> None:
    path = tmp_path / "keys.jks"
    make = ["-genkeypair", "-keyalg", "RSA", "-dname", "CN=rsa", "-storetype", "JKS", "-keystore", str(path)]
    subprocess.run([*KEYTOOL, *make], check=True, capture_output=True)
    assert load_key_and_certificates(stored(path)).chain[0].subject.rfc4514_string() == "CN=rsa"


def test_a_wrong_password_of_jks_is_named_in_the_error(jks: Path) -> None:
    other_password = stored(jks, ssl_keystore_password="x", ssl_key_password=KEY_PASSWORD)
    assert "ssl.keystore.password may be wrong" in refusal(load_key_and_certificates, other_password)
    assert "the password of the key is another, set ssl.key.password" in refusal(load_key_and_certificates, stored(jks))
    assert "in ssl.key.password is wrong" in refusal(load_key_and_certificates, stored(jks, ssl_key_password="x"))
    trust = get(ssl_truststore_location=str(jks), ssl_truststore_password="x")
    assert "ssl.truststore.password may be wrong" in refusal(load_trusted_certificates, trust)


def test_a_jks_key_store_without_a_key_is_rejected(jks: Path, tmp_path: Path) -> None:
    path = tmp_path / "trust.jks"
    path.write_bytes(jks.read_bytes())
    remove = ["-delete", "-alias", "broker", "-keystore", str(path)]
    subprocess.run([*KEYTOOL, *remove], check=True, capture_output=True)
    assert "holds no private key with a certificate" in refusal(load_key_and_certificates, stored(path))


# --- what is refused --------------------------------------------------------------------------------


def refusal(read: Callable[[Callable[[str], Any]], Any], settings: Callable[[str], Any]) -> str:
    with pytest.raises(StoreError) as refused:
        read(settings)
    message = str(refused.value)
    assert "\n" not in message and PASSWORD not in message and "BEGIN" not in message
    return message


@for_each(
    ("settings", "complaint"),
    [
        (get(), "it has no key"),
        (pem(ssl_keystore_key=None), "go together"),
        (pem(ssl_keystore_certificate_chain=None), "go together"),
        (pem(ssl_keystore_type="JKS"), "only PEM can be given as a text"),
        (pem(ssl_keystore_type="pem"), "ssl.keystore.type=pem is none of PEM, PKCS12, JKS"),
        (pem(ssl_keystore_password=PASSWORD), "has no meaning for PEM"),
        (pem(ssl_keystore_location="/x"), "only one of them can be"),
        (pem(ssl_keystore_key=server.key_pem(PASSWORD)), "encrypted, and ssl.key.password is not set"),
        (pem(ssl_keystore_key=server.key_pem(PASSWORD), ssl_key_password="x"), "ssl.key.password may be wrong"),
        (pem(ssl_key_password=PASSWORD), "the private key is not encrypted"),
        (pem(ssl_keystore_key="secret"), "one private key is needed in the key store, and there are 0"),
        (pem(ssl_keystore_key=server.key_pem() + other.key_pem()), "and there are 2"),
        (pem(ssl_keystore_key=other.key_pem()), "is not that of the first certificate"),
        (pem(ssl_keystore_certificate_chain="none"), "ssl.keystore holds no certificate in PEM"),
        (get(ssl_keystore_location="/no/such", ssl_keystore_password="x"), "/no/such: No such file"),
        (get(ssl_keystore_location="/no/such"), "ssl.keystore.password is not"),
    ],
)
def test_an_unusable_key_store_is_rejected(settings: Callable[[str], Any], complaint: str) -> None:
    assert complaint in refusal(load_key_and_certificates, settings)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (get(ssl_truststore_password=PASSWORD), "ssl.truststore.location is not"),
        (get(ssl_truststore_certificates=authority.pem), "only PEM can be given as a text"),
        (get(ssl_truststore_type="PEM", ssl_truststore_certificates="x"), "holds no certificate in PEM"),
        (get(ssl_truststore_location="/no/such"), "/no/such: No such file"),
    ],
)
def test_an_unusable_trust_store_is_rejected(settings: Callable[[str], Any], complaint: str) -> None:
    assert complaint in refusal(load_trusted_certificates, settings)


def test_a_jceks_file_is_rejected_with_a_conversion_hint(tmp_path: Path) -> None:
    path = tmp_path / "keys.jks"
    make = ["-genkeypair", "-keyalg", "EC", "-dname", "CN=x", "-storetype", "JCEKS", "-keystore", str(path)]
    subprocess.run([*KEYTOOL, *make], check=True, capture_output=True)
    message = refusal(load_key_and_certificates, stored(path))
    assert message.startswith(f"ssl.keystore.location: {path} is a JCEKS file, convert it: keytool ")
    command = message.partition("convert it: keytool ")[2].split()
    passwords = ["-srcstorepass", PASSWORD, "-deststorepass", PASSWORD]
    subprocess.run(["keytool", *command, *passwords, "-noprompt"], check=True, capture_output=True)
    assert load_key_and_certificates(stored(Path(f"{path}.p12"))).chain[0].subject.rfc4514_string() == "CN=x"


def test_a_wrong_password_and_a_wrong_file_are_named_in_the_error(pkcs12: Path, tmp_path: Path) -> None:
    assert "ssl.keystore.password may be wrong" in refusal(
        load_key_and_certificates, stored(pkcs12, ssl_keystore_password="x")
    )
    assert "have to be the same" in refusal(load_key_and_certificates, stored(pkcs12, ssl_key_password="x"))
    text = tmp_path / "text"
    text.write_text(server.certificate_pem)
    assert "is PEM: set ssl.keystore.type=PEM" in refusal(load_key_and_certificates, stored(text))
    text.write_text("no store")
    assert "it is not PKCS12" in refusal(load_key_and_certificates, stored(text))
    text.write_bytes(bytes(2 << 20))
    assert "so it is no store" in refusal(load_key_and_certificates, stored(text))
