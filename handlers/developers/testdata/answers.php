<?php
// Calls services that do not answer as they should, and prints what the client makes of each answer.
// Arguments: integrity.php, and a file with the calls as JSON.
declare(strict_types=1);

require $argv[1];

$results = [];
foreach (json_decode(file_get_contents($argv[2]), true, flags: JSON_THROW_ON_ERROR) as $call) {
    $client = new Integrity\Client($call['origin'], 'ik_secret', (float) $call['timeout']);
    try {
        match ($call['operation']) {
            'read' => $client->lookup('c', 's', 'd', 1),
            'write' => $client->register(['sha256' => str_repeat('a', 64)]),
            'signed' => $client->evidence('a'),
            'many' => $client->evidenceOfMany(['a', 'b']),
            'public' => $client->compare('a', str_repeat('a', 64)),
        };
        $results[] = ['kind' => 'success', 'message' => ''];
    } catch (Integrity\Failure $error) {
        $results[] = [
            'kind' => $error::class, 'message' => $error->getMessage(), 'retryable' => $error->retryable,
            'outcomeUnknown' => $error->outcomeUnknown, 'retryAfter' => $error->retryAfter ?? 0,
        ];
    }
}
echo json_encode($results, JSON_THROW_ON_ERROR | JSON_INVALID_UTF8_SUBSTITUTE);
