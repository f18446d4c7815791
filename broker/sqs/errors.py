"""What SQS answers where something cannot be done: names, codes, and statuses of errors."""

from __future__ import annotations

from typing import Final, NamedTuple

_OLD: Final = "AWS.SimpleQueueService."
# What AWS sends before the name of an error in JSON; clients read what is behind the "#".
NAMESPACE: Final = "com.amazonaws.sqs#"


class Kind(NamedTuple):
    """One of the errors: its name in the JSON protocol, its code in the query protocol."""

    name: str
    code: str
    status: int = 400


ACCESS_DENIED: Final = Kind("AccessDeniedException", "AccessDenied", 403)
BAD_ACTION: Final = Kind("InvalidAction", "InvalidAction")
BAD_ADDRESS: Final = Kind("InvalidAddress", "InvalidAddress", 404)
BAD_ATTRIBUTE_NAME: Final = Kind("InvalidAttributeName", "InvalidAttributeName")
BAD_ATTRIBUTE_VALUE: Final = Kind("InvalidAttributeValue", "InvalidAttributeValue")
BAD_CONTENTS: Final = Kind("InvalidMessageContents", "InvalidMessageContents")
BAD_ENTRY_ID: Final = Kind("InvalidBatchEntryId", f"{_OLD}InvalidBatchEntryId")
BAD_HANDLE: Final = Kind("ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid", 404)
BAD_PARAMETER: Final = Kind("InvalidParameterValueException", "InvalidParameterValue")
BAD_REQUEST: Final = Kind("SerializationException", "MalformedInput")
BAD_SIGNATURE: Final = Kind("InvalidSignatureException", "SignatureDoesNotMatch", 403)
BATCH_EMPTY: Final = Kind("EmptyBatchRequest", f"{_OLD}EmptyBatchRequest")
BATCH_TOO_LONG: Final = Kind("BatchRequestTooLong", f"{_OLD}BatchRequestTooLong")
BATCH_TOO_MANY: Final = Kind("TooManyEntriesInBatchRequest", f"{_OLD}TooManyEntriesInBatchRequest")
ENTRY_IDS_TWICE: Final = Kind("BatchEntryIdsNotDistinct", f"{_OLD}BatchEntryIdsNotDistinct")
HALF_SIGNED: Final = Kind("IncompleteSignatureException", "IncompleteSignature")
INTERNAL: Final = Kind("InternalFailure", "InternalFailure", 500)
MISSING: Final = Kind("MissingRequiredParameterException", "MissingParameter")
NOT_FOUND: Final = Kind("ResourceNotFoundException", "ResourceNotFoundException", 404)
NOT_IN_FLIGHT: Final = Kind("MessageNotInflight", f"{_OLD}MessageNotInflight")
NO_QUEUE: Final = Kind("QueueDoesNotExist", f"{_OLD}NonExistentQueue")
OVER_LIMIT: Final = Kind("OverLimit", "OverLimit", 403)
QUEUE_EXISTS: Final = Kind("QueueNameExists", "QueueAlreadyExists")
TOO_LARGE: Final = Kind("RequestEntityTooLarge", "RequestEntityTooLarge", 413)
UNAVAILABLE: Final = Kind("ServiceUnavailable", "ServiceUnavailable", 503)
UNKNOWN_KEY: Final = Kind("UnrecognizedClientException", "InvalidClientTokenId", 403)
UNSIGNED: Final = Kind("MissingAuthenticationTokenException", "MissingAuthenticationToken", 403)
UNSUPPORTED: Final = Kind("UnsupportedOperation", f"{_OLD}UnsupportedOperation")

TEXT_CHARS_MAX: Final = 1000  # a message quotes what was sent, which may be long


class SqsError(Exception):
    """Raised where it is noticed, and answered in the protocol that the client speaks."""

    def __init__(self, kind: Kind, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text[:TEXT_CHARS_MAX]

    @property
    def is_senders_fault(self) -> bool:
        return self.kind.status < INTERNAL.status


def bad_parameter(name: str, value: object, reason: str) -> SqsError:
    """In AWS's words."""
    text = f"Value {value!s:.100} for parameter {name} is invalid. Reason: {reason}"
    return SqsError(BAD_PARAMETER, text)


def missing(name: str) -> SqsError:
    return SqsError(MISSING, f"The request must contain the parameter {name}.")


def no_queue() -> SqsError:
    return SqsError(NO_QUEUE, "The specified queue does not exist.")
