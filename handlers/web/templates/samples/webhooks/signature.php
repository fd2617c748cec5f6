<?php
// Whether the raw body was signed with the secret, within 300 seconds of now.
function signed(string $header, string $body, string $secret, ?int $now = null): bool
{
    if (preg_match_all('/(?:^|,)t=([0-9]{1,12})(?=,|$)/D', $header, $times) !== 1) {
        return false;
    }
    $at = $times[1][0];
    if (abs(($now ?? time()) - (int) $at) > 300) {
        return false;
    }
    $expected = hash_hmac('sha256', "$at.$body", $secret);
    preg_match_all('/(?:^|,)v1=([0-9a-f]{64})(?=,|$)/D', $header, $given);
    foreach ($given[1] as $one) {
        if (hash_equals($expected, $one)) {
            return true;
        }
    }
    return false;
}
