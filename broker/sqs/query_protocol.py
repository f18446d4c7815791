"""The older protocol: parameters as a form or in the URL, results as XML.

Both are turned into the shapes of the JSON protocol and back: lists have numbered names without
their plural (`AttributeName.1`), maps are lists of names and values (`Tag.1.Key`, `Tag.1.Value`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

from broker.http.messages import Response
from broker.sqs.errors import BAD_ACTION, BAD_REQUEST, SqsError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from broker.http.messages import Request

CONTENT_TYPE: Final = "text/xml"
FORM_TYPE: Final = "application/x-www-form-urlencoded"
NAMESPACE: Final = "http://queue.amazonaws.com/doc/2012-11-05/"
# Ten entries of a batch, each with ten attributes of three fields, and some.
FIELDS_MAX: Final = 1000

_LISTS: Final = {
    "AttributeName": "AttributeNames",
    "MessageAttributeName": "MessageAttributeNames",
    "MessageSystemAttributeName": "MessageSystemAttributeNames",
    "TagKey": "TagKeys",
    "SendMessageBatchRequestEntry": "Entries",
    "DeleteMessageBatchRequestEntry": "Entries",
    "ChangeMessageVisibilityBatchRequestEntry": "Entries",
}
# Maps, with what they call the name of an item.
_MAPS: Final = {
    "Attribute": ("Attributes", "Name"),
    "MessageAttribute": ("MessageAttributes", "Name"),
    "MessageSystemAttribute": ("MessageSystemAttributes", "Name"),
    "Tag": ("Tags", "Key"),
}
# What results call an item of a list or map; an item of an untold list is called as in JSON.
_ITEMS: Final = {
    "QueueUrls": "QueueUrl",
    "queueUrls": "QueueUrl",
    "Messages": "Message",
    "Attributes": "Attribute",
    "MessageAttributes": "MessageAttribute",
    "Tags": "Tag",
    "Results": "ListMessageMoveTasksResultEntry",
    "Failed": "BatchResultErrorEntry",
}
_NOT_XML: Final = dict.fromkeys(
    [
        *(code for code in range(0x20) if code not in (0x9, 0xA, 0xD)),
        *range(0xD800, 0xE000),  # no characters: halves of pairs, and bytes that are not UTF-8
        *(0xFFFE, 0xFFFF),
    ],
    "\ufffd",
)


def parse(request: Request) -> tuple[str, dict[str, Any]]:
    """The action and its parameters, from the URL and from a form."""
    fields = {name: values[-1] for name, values in request.query.items()}
    if request.headers.get("content-type", FORM_TYPE).startswith(FORM_TYPE):
        fields |= _form(request.body)
    action = fields.pop("Action", None)
    if action is None:
        raise SqsError(BAD_ACTION, "The request must contain the parameter Action.")
    return action, shapes_of(fields)


def _form(body: bytes) -> dict[str, str]:
    try:
        pairs = parse_qsl(
            body.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(body),
            errors="strict",
            max_num_fields=FIELDS_MAX,
        )
    except ValueError:
        raise SqsError(BAD_REQUEST, "The body is not a form.") from None
    return dict(pairs)


def shapes_of(fields: Mapping[str, str]) -> dict[str, Any]:
    """Parameters as the JSON protocol has them."""
    shaped: dict[str, Any] = {}
    numbered: dict[str, dict[int, dict[str, str]]] = {}
    for name, value in fields.items():
        first, _, rest = name.partition(".")
        number, _, below = rest.partition(".")
        if first in _LISTS or first in _MAPS:
            if not number.isascii() or not number.isdigit() or len(number) > 4:
                raise SqsError(BAD_REQUEST, f"{name:.100} is not a numbered parameter.")
            numbered.setdefault(first, {}).setdefault(int(number), {})[below] = value
        else:
            shaped[name] = value
    for first, items in numbered.items():
        in_order = [items[number] for number in sorted(items)]
        if first in _MAPS:
            whole, key = _MAPS[first]
            shaped[whole] = dict(_map_item(first, key, item) for item in in_order)
        else:
            shaped[_LISTS[first]] = [_list_item(item) for item in in_order]
    if "Tags" in shaped:
        shaped["tags"] = shaped["Tags"]  # CreateQueue calls them so
    return shaped


def _list_item(item: dict[str, str]) -> object:
    return item[""] if "" in item else shapes_of(item)


def _map_item(first: str, key: str, item: dict[str, str]) -> tuple[str, object]:
    name = item.pop(key, None)
    if name is None:
        raise SqsError(BAD_REQUEST, f"{first} needs a {key}.")
    if "Value" in item:
        return name, item["Value"]
    return name, {below.removeprefix("Value."): value for below, value in item.items()}


# Results


def result(action: str, value: Mapping[str, Any], request_id: str) -> Response:
    inside = "".join(_elements(action, value))
    body = f"<{action}Result>{inside}</{action}Result>" if value else ""
    metadata = f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata>"
    return _response(200, f"{action}Response", body + metadata, request_id)


def error(problem: SqsError, request_id: str) -> Response:
    fault = "Sender" if problem.is_senders_fault else "Receiver"
    parts = {"Type": fault, "Code": problem.kind.code, "Message": problem.text}
    inside = "".join(_element(name, text) for name, text in parts.items())
    body = f"<Error>{inside}<Detail/></Error><RequestId>{request_id}</RequestId>"
    return _response(problem.kind.status, "ErrorResponse", body, request_id)


def _response(status: int, root: str, inside: str, request_id: str) -> Response:
    text = f'<?xml version="1.0"?><{root} xmlns="{NAMESPACE}">{inside}</{root}>'
    return Response(
        status=status,
        headers={"Content-Type": CONTENT_TYPE, "x-amzn-RequestId": request_id},
        body=text.encode(),
    )


def _elements(action: str, value: Mapping[str, Any]) -> Iterator[str]:
    for name, part in value.items():
        if isinstance(part, list):
            item = f"{action}ResultEntry" if name == "Successful" else _ITEMS.get(name, name)
            for one in part:
                inside = "".join(_elements(action, one)) if isinstance(one, dict) else _text(one)
                yield f"<{item}>{inside}</{item}>"
        elif isinstance(part, dict):
            yield from _map_elements(action, name, part)
        else:
            yield _element(name, part)


def _map_elements(action: str, name: str, items: Mapping[str, Any]) -> Iterator[str]:
    item = _ITEMS.get(name, name)
    key = "Key" if item == "Tag" else "Name"
    for one, value in items.items():
        inside = "".join(_elements(action, value)) if isinstance(value, dict) else _text(value)
        yield f"<{item}>{_element(key, one)}<Value>{inside}</Value></{item}>"


def _element(name: str, value: object) -> str:
    return f"<{name}>{_text(value)}</{name}>"


def _text(value: object) -> str:
    """What XML cannot say is replaced; a carriage return would be lost if it were not spelt."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return escape(str(value).translate(_NOT_XML), {"\r": "&#13;"})
