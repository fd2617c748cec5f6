import hashlib
import hmac
import re
import time

def signed(header: str, body: bytes, secret: str, now: float | None = None) -> bool:
    """Whether the raw body was signed with the secret within 300 seconds of now."""
    times = re.findall(r"(?:^|,)t=([0-9]{1,12})(?=,|$)", header)
    if len(times) != 1:
        return False
    if abs((time.time() if now is None else now) - int(times[0])) > 300:
        return False
    message = times[0].encode() + b"." + body
    expected = hmac.new(secret.encode(), message, hashlib.sha256).hexdigest()
    given = re.findall(r"(?:^|,)v1=([0-9a-f]{64})(?=,|$)", header)
    return any([hmac.compare_digest(expected, one) for one in given])
