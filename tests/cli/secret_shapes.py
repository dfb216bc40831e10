"""Strings that have the shape of secrets, with what stands around them; all made up. Built from parts, so that no
scanner of repositories takes them for real ones."""

import json

_A = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_KEY = "-----{} {}PRIVATE KEY-----"


def _pem(kind: str = "") -> str:
    body = "\n".join([_A[:60]] * 3)
    return f"{_KEY.format('BEGIN', kind)}\n{body}\n{_KEY.format('END', kind)}"


JWT = ".".join(("eyJ" + _A[:20], "eyJ" + _A[10:50], _A[5:45]))

ALONE = {
    "openai": "sk-" + _A[:48],
    "openai project": "sk-proj-" + _A[:20] + "_" + _A[20:50] + "-" + _A[3:9],
    "anthropic": "sk-ant-api03-" + _A[:60] + "-AA",
    "stripe": "sk_live_" + _A[:24],
    "aws": "AKIA" + "Q7ZK4MXW2N5PJ3RD",
    "aws session": "ASIA" + "Q7ZK4MXW2N5PJ3RD",
    "github": "ghp_" + _A[:36],
    "github app": "ghs_" + _A[:36],
    "github fine-grained": "github_pat_" + _A[:22] + "_" + _A[:59],
    "gitlab": "glpat-" + _A[:20],
    "slack": "xoxb-" + "123456789012-1234567890123-" + _A[:24],
    "google": "AIza" + _A[:35],
    "hugging face": "hf_" + _A[:34],
    "npm": "npm_" + _A[:36],
    "jwt": JWT,
    "jwt without a signature": JWT.rpartition(".")[0],
    "private key": _pem(),
    "rsa key": _pem("RSA "),
    "ssh key": _pem("OPENSSH "),
    "key that breaks off": _pem()[:120],
}
"""By name: strings that are secrets wherever they stand."""

PASSWORD = "hunter2-Tr0ub4dor"

AROUND = {
    "bearer": f"Authorization: Bearer {PASSWORD}",
    "bearer alone": f"the header is bearer {PASSWORD} there",
    "basic": f"authorization: Basic {PASSWORD}",
    "curl": f"curl -H 'Authorization: token {PASSWORD}' x",
    "api key header": f"X-Api-Key: {PASSWORD}",
    "cookie": f"Set-Cookie: sid={PASSWORD}; Path=/",
    "address": f"postgres://admin:{PASSWORD}@db.example.org:5432/x",
    "address without a user": f"redis://:{PASSWORD}@localhost",
    "assignment": f"password={PASSWORD}",
    "environment": f"export DB_PASSWORD={PASSWORD}",
    "spaces": f"Password :  {PASSWORD}",
    "quoted": f'secret = "{PASSWORD} and more"',
    "single quotes": f"client_secret: '{PASSWORD}'",
    "quote within": f'password = "a\\"{PASSWORD}"',
    "yaml": f"api_key: {PASSWORD}\nother: 1",
    "json": json.dumps({"user": "u", "access_token": PASSWORD}),
    "compact json": json.dumps({"apiKey": PASSWORD, "n": 1}, separators=(",", ":")),
    "json in json": json.dumps({"body": json.dumps({"passwd": PASSWORD})}),
    "json in json in json": json.dumps({"body": json.dumps({"body": json.dumps({"passphrase": PASSWORD})})}),
    "quote within, in json": json.dumps({"body": json.dumps({"password": 'a"' + PASSWORD})}),
    "arrow": f":password => {PASSWORD}",
    "query": f"https://example.org/?x=1&token={PASSWORD}&y=2",
    "option": f"mysql --password {PASSWORD} db",
    "option in a list": json.dumps(["mysql", "--password", PASSWORD]),
    "xml": f"<password>{PASSWORD}</password>",
    "user and password": f"curl -u admin:{PASSWORD} https://example.org",
    "aws secret": f"aws_secret_access_key = {PASSWORD}",
    "after an escape": json.dumps({"text": f"x\npassword={PASSWORD}"}),
}
"""By name: texts in which what stands around makes a secret of `PASSWORD`."""


def texts() -> dict[str, tuple[str, str]]:
    """By name: a text, and the secret in it."""
    found = {name: (f"Use {secret} for it.", secret) for name, secret in ALONE.items()}
    found |= {f"{name}, in json": (json.dumps({"x": f"so:\n{secret}"}), secret) for name, secret in ALONE.items()}
    return found | {name: (text, PASSWORD) for name, text in AROUND.items()}


HARMLESS = (
    "The password is checked with bcrypt; no token is kept.",
    "max_tokens: 128, tokenizer=bpe, tokens_generated: 7",
    "a risk-based approach to disk-encryption-at-rest-in-2024",
    "See https://example.org:8080/path@v2 and user@example.org.",
    "The secret of the sea; a top-secret file; passwords matter.",
    "AKIA is how they begin, and sk- too. eyJ is base64.",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
    "```python\nprint('hello')\n```",
)
