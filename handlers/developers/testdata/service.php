<?php
// The client against a service. Arguments: integrity.php. Environment: SERVICE and PLAIN (the same service by https and
// http), AUTHORITY (the PEM file of its certificate), KEY, COMPANY, and
// INCLUDED (the public id of a record in the log).
declare(strict_types=1);

use Integrity\{BadSignature, Client, Refused, Unanswered};

require $argv[1];

function same(string $what, mixed $got, mixed $want): void
{
    if ($got !== $want) {
        throw new AssertionError("$what: " . json_encode($got) . ', want ' . json_encode($want));
    }
}

/** @param class-string<Throwable> $class */
function fails(string $what, string $class, string $says, callable $do): Throwable
{
    try {
        $do();
    } catch (Throwable $error) {
        if ($error instanceof $class && str_contains($error->getMessage(), $says)) {
            return $error;
        }
        throw new AssertionError("$what: $error");
    }
    throw new AssertionError("$what: it succeeded");
}

$client = new Client(getenv('SERVICE'), getenv('KEY'), authority: getenv('AUTHORITY'));
$company = getenv('COMPANY');
$identity = ['companyReference' => $company, 'source' => 'php', 'documentReference' => 'factura:1', 'version' => 1];
$path = tempnam(sys_get_temp_dir(), 'php');
file_put_contents($path, "The final bytes of a document.\n");

$reservation = $client->reserve(...$identity);
$declaration = Client::declaration(
    $path, ...$identity, mimeType: 'text/plain', generatedAt: new DateTimeImmutable('2026-11-20T11:00:00.25+01:00'),
    reservationId: $reservation['publicId'],
);
same('sha256', $declaration['sha256'], hash_file('sha256', $path));
same('sizeBytes', $declaration['sizeBytes'], 31);
same('generatedAt', $declaration['generatedAt'], '2026-11-20T10:00:00.250000Z');
$record = $client->register($declaration);
same('the link', $record['verificationUrl'], $reservation['verificationUrl']);
same('replayed', $record['replayed'], false);
same('replayed, again', $client->register($declaration)['replayed'], true);
same('reconciled', $client->reconcile($declaration)['replayed'], true);
same('looked up', $client->lookup(...$identity)['publicId'], $record['publicId']);

$conflict = fails('other bytes', Refused::class, 'VERSION_CONFLICT', fn() => $client->register(['sha256' => str_repeat('a', 64)] + $declaration));
same('status', $conflict->status, 409);
same('existing', $conflict->existing['publicId'], $record['publicId']);
same('retryable', $conflict->retryable, false);
$invalid = fails('a malformed hash', Refused::class, '/sha256', fn() => $client->register(['sha256' => 'x'] + $declaration));
same('pointer', $invalid->fields[0]['pointer'], '/sha256');
$unknown = fails('an unknown version', Refused::class, 'RECORD_NOT_FOUND', fn() => $client->lookup($company, 'php', 'none', 1));
same('a request id', is_string($unknown->requestId), true);
same('registered late', $client->reconcile(['documentReference' => 'late', 'reservationId' => null] + $declaration)['replayed'], false);

$public = new Client(getenv('SERVICE'), authority: getenv('AUTHORITY'));
same('compared', $public->compareFile($record['publicId'], $path)['result'], 'MATCH_CURRENT');
$other = $public->compare($record['publicId'], str_repeat('0', 64));
same('another file', [$other['result'], $other['verified']], ['HASH_MISMATCH', false]);
fails('a key is missing', InvalidArgumentException::class, 'apiKey', fn() => $public->lookup(...$identity));
file_put_contents(getenv('EVIDENCE'), $client->evidence($record['publicId']));
[$included, $fresh, $none] = $client->evidenceOfMany([getenv('INCLUDED'), $record['publicId'], str_repeat('a', 26)], wait: 1);
same('one with a proof', $included['status'], 200);
same('others', [$fresh['error']['code'], $none['error']['code']], ['INCLUSION_PENDING', 'RECORD_NOT_FOUND']);
file_put_contents(getenv('MANY'), json_encode($included['data'], JSON_THROW_ON_ERROR));
$twice = fails('an id twice', Refused::class, 'INVALID_DATA', fn() => $client->evidenceOfMany([$record['publicId'], $record['publicId']]));
same('pointer', $twice->fields[0]['pointer'], '/publicIds/1');
fails('an id that is no UTF-8', InvalidArgumentException::class, 'publicIds', fn() => $client->evidenceOfMany(["\xff"]));
same('a proof', str_starts_with($client->tlogProof(getenv('INCLUDED'), wait: 1), "c2sp.org/tlog-proof@v1\n"), true);
same('a report', substr($client->report(getenv('INCLUDED'), 'es'), 0, 5), '%PDF-');
same('a public report', substr($public->publicReport(getenv('INCLUDED')), 0, 5), '%PDF-');
same('a public proof', str_starts_with($public->publicTlogProof(getenv('INCLUDED')), "c2sp.org/tlog-proof@v1\n"), true);
fails('a proof too early', Refused::class, 'INCLUSION_PENDING', fn() => $client->tlogProof($record['publicId']));
file_put_contents(getenv('RECEIPT'), $public->receipt($record['publicId']));
(new Client(getenv('PLAIN'), getenv('KEY')))->lookup(...$identity);

$stranger = new Client(getenv('SERVICE'), getenv('KEY'));
$untrusted = fails('an unknown authority', Unanswered::class, 'certificate', fn() => $stranger->register($declaration));
same('nothing was sent', $untrusted->outcomeUnknown, false);

foreach (['', 'ledger.example', 'http://ledger.example', 'http://127.0.0.1.example', 'ftp://ledger.example',
    'https://u:p@ledger.example', 'https://ledger.example/api', 'https://ledger.example?x', 'https://'] as $address) {
    fails($address, InvalidArgumentException::class, 'baseUrl', fn() => new Client($address));
}
foreach (['https://ledger.example:8443/', 'http://localhost', 'http://[::1]:8080', 'HTTP://127.0.0.1'] as $address) {
    new Client($address);
}
fails('a key of two lines', InvalidArgumentException::class, 'apiKey', fn() => new Client('https://ledger.example', "ik_a\nb"));
fails('no time', InvalidArgumentException::class, 'timeout', fn() => new Client('https://ledger.example', timeout: 0));
fails('an unknown member', InvalidArgumentException::class, 'customer', fn() => $client->register(['customer' => 'x'] + $declaration));
fails('no UTF-8', InvalidArgumentException::class, 'source', fn() => $client->register(['source' => "\xff"] + $declaration));
fails('a directory', InvalidArgumentException::class, 'path', fn() => $client->compareFile('a', sys_get_temp_dir()));
fails('no id', InvalidArgumentException::class, 'publicId', fn() => $client->evidence('..'));

$vectors = json_decode(file_get_contents(getenv('WEBHOOKS')), true, flags: JSON_THROW_ON_ERROR)['vectors'];
foreach ($vectors as $vector) {
    $verify = fn($secrets) => Client::verifyWebhook($vector['headers']['Service-Signature'] ?? '', $vector['body'], $secrets, $vector['now']);
    if ($vector['valid']) {
        same($vector['name'], $verify($vector['secret'])['id'], json_decode($vector['body'], true)['id']);
        same($vector['name'], $verify(['whsec_other', $vector['secret']])['version'], 1);
    } else {
        fails($vector['name'], BadSignature::class, '', fn() => $verify($vector['secret']));
    }
}
same('vectors', count($vectors) > 5, true);
$signed = fn(string $body) => 't=5,v1=' . hash_hmac('sha256', "5.$body", 'whsec_one');
fails('another protocol', BadSignature::class, 'version 1', fn() => Client::verifyWebhook($signed('{"id":"e","version":2}'), '{"id":"e","version":2}', 'whsec_one', 5));
fails('an empty secret', InvalidArgumentException::class, 'secrets', fn() => Client::verifyWebhook($signed('{}'), '{}', '', 5));
echo "ok\n";
