"""Profiles on the Hugging Face Hub, with its cache, tokens, revisions and offline mode."""

import json
from functools import partial

from galaxydit.errors import refusal
from galaxydit.profiles.schema import Profile, read_profile

PREFIX = "hf://"
FILE = "profile.json"
MOST_BYTES = 4_000_000


def read_from_hub(address: str) -> Profile:
    """The profile of "hf://owner/name" or "hf://owner/name@revision".

    The file is JSON that the profile's schema checks, of at most 4 MB. Raises GalaxyDiTError if it cannot be had.
    """
    from huggingface_hub import errors, hf_hub_download

    repository, _, revision = address.removeprefix(PREFIX).partition("@")
    refused = partial(refusal, "profile", address)
    try:
        found = hf_hub_download(repository, FILE, revision=revision or None, dry_run=True)
        if (found.file_size or 0) > MOST_BYTES:
            raise refused(f"a file of at most {MOST_BYTES} bytes", "name a repository with a profile")
        path = hf_hub_download(repository, FILE, revision=revision or None)
    except errors.HFValidationError as error:
        raise refused("hf://owner/name or hf://owner/name@revision", "correct the address") from error
    except errors.RevisionNotFoundError as error:
        raise refused("a revision of the repository", "leave out @revision for the newest") from error
    except errors.RepositoryNotFoundError as error:
        cure = "correct the name, or log in with `hf auth login` if it is private"
        raise refused("a repository that exists and that you may read", cure) from error
    except errors.RemoteEntryNotFoundError as error:
        raise refused(f"a repository with {FILE}", "name one made by `galaxydit calibrate --push`") from error
    except errors.LocalEntryNotFoundError as error:
        raise refused("a profile that was fetched before, or a connection", "connect once, or pass a file") from error
    except (OSError, errors.HfHubHTTPError) as error:
        if getattr(getattr(error, "response", None), "status_code", None) in (401, 403):
            raise refused("a repository that you may read", "log in with `hf auth login`") from error
        raise refused(f"an answer of the Hub ({type(error).__name__}: {error})", "try again, or pass a file") from error
    return read_profile(path)


def push_to_hub(profile: Profile, repository: str, card: str) -> str:
    """Upload a profile and its card to "owner/name", which is made if it is missing; returns the page's address.

    Raises GalaxyDiTError if the Hub refuses.
    """
    from huggingface_hub import CommitOperationAdd, HfApi, errors

    content = json.dumps(profile.to_dict(), indent=1, allow_nan=False).encode()
    operations = [CommitOperationAdd(FILE, content), CommitOperationAdd("README.md", card.encode())]
    api = HfApi()
    try:
        api.create_repo(repository, exist_ok=True)
        return str(api.create_commit(repository, operations, commit_message=f"Profile {profile.name}").repo_url)
    except (OSError, errors.HfHubHTTPError, errors.HFValidationError, errors.LocalTokenNotFoundError) as error:
        cure = "log in with `hf auth login`, and name a repository of yours; the profile is kept in its file"
        raise refusal("--push", repository, f"a repository that you may write to ({error})", cure) from error
