<?php
require 'integrity.php';

$ledger = new Integrity\Client(getenv('INTEGRITY_BASE_URL'), getenv('INTEGRITY_API_KEY'));
$declaration = Integrity\Client::declaration(
    'document.txt',
    companyReference: getenv('INTEGRITY_COMPANY'),
    source: 'quick-start', documentReference: 'php', version: 1,
    mimeType: 'text/plain',
    generatedAt: new DateTimeImmutable('2026-11-21T09:30:00Z'),
);
// In an origin system, store it now, in the transaction that stores the file.
try {
    $record = $ledger->register($declaration);
} catch (Integrity\Unanswered) { // later, as often as it takes
    $record = $ledger->reconcile($declaration);
}
echo $record['verificationUrl'], "\n";
