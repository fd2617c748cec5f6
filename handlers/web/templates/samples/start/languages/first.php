<?php
$document = "The final bytes of a document.\n";
$declaration = json_encode([
    'companyReference' => getenv('INTEGRITY_COMPANY'), 'source' => 'quick-start',
    'documentReference' => uniqid('document-'), 'version' => 1,
    'sha256' => hash('sha256', $document), 'sizeBytes' => strlen($document),
    'mimeType' => 'text/plain', 'generatedAt' => gmdate('Y-m-d\TH:i:s\Z'),
]);
file_put_contents('document.txt', $document);
file_put_contents('declaration.json', $declaration);
$http = ['method' => 'POST', 'content' => $declaration, 'timeout' => 60, 'header' => [
    'Authorization: Bearer ' . getenv('INTEGRITY_API_KEY'),
    'Content-Type: application/json',
], 'ignore_errors' => true]; // a refusal is an answer, too
$record = file_get_contents(
    getenv('INTEGRITY_BASE_URL') . '/api/v1/integrity/records',
    context: stream_context_create(['http' => $http]),
);
if ($record === false) exit(1);
if (!isset(json_decode($record)->data)) {
    fwrite(STDERR, $record);
    exit(1);
}
file_put_contents('record.json', $record);
echo $record;
