<?php
/**
 * Client of Integrity Ledger for origin systems in PHP: one file, PHP 8.1 or newer with the extension curl.
 *
 *     require 'integrity.php';
 *     $ledger = new Integrity\Client(getenv('INTEGRITY_BASE_URL'), getenv('INTEGRITY_API_KEY'));
 *     $declaration = Integrity\Client::declaration(
 *         'invoice.pdf', companyReference: 'c-7f3a91', source: 'erp', documentReference: 'd-1', version: 1,
 *         mimeType: 'application/pdf', generatedAt: new DateTimeImmutable(),
 *     );
 *     ... // save the declaration with the document, in one transaction of your own
 *     try {
 *         $record = $ledger->register($declaration);
 *     } catch (Integrity\Unanswered $error) {
 *         ... // later: send the saved declaration again with $ledger->reconcile($declaration)
 *     }
 *
 * The client sends the file's hash, size, media type and times, never the file. It speaks HTTPS only (HTTP to this
 * computer's own addresses), follows no redirect, ignores proxies of the environment, limits the time of every request
 * and repeats nothing by itself. Use a Client in one request or process; each call opens a connection of its own.
 *
 * A registration says that your organization declared this hash and that the service received it at receivedAt by the
 * service's clock. It is neither a review nor an approval, and no independent timestamp.
 *
 * Keep the API key on servers, and out of source code, logs, addresses and documents.
 */

declare(strict_types=1);

namespace Integrity;

const VERSION = '@VERSION@';

/**
 * What went wrong with a request.
 *
 * If outcomeUnknown is true, the write may have happened: send the same declaration again with Client::reconcile. If it
 * is false and retryable is true, nothing was done: send the same again after retryAfter seconds.
 */
abstract class Failure extends \RuntimeException
{
    public bool $outcomeUnknown = false;

    public function __construct(
        string $message,
        public readonly ?int $status = null, // of the answer, if there was one
        public readonly ?string $errorCode = null, // stable: see BASE_URL/errors/<code in kebab case>
        public readonly bool $retryable = false,
        public readonly ?int $retryAfter = null, // seconds
        public readonly ?string $requestId = null,
    ) {
        parent::__construct($message);
    }
}

/**
 * The service refused the request and changed nothing. Unless retryable is true, correct the request: sending the same
 * again gives the same answer.
 */
final class Refused extends Failure
{
    /** @var list<array{pointer: string, code: string, message: string}> the members that the service refused */
    public array $fields = [];
    /** @var ?array{publicId: string, receivedAt: string} with VERSION_CONFLICT: the version that is registered */
    public ?array $existing = null;
}

/** No usable answer arrived: no connection, no time left, a 5xx or a redirect. It says nothing about any document. */
final class Unanswered extends Failure
{
}

/** The request is not a delivery of the service, or is older than the tolerance. Answer it with 401. */
final class BadSignature extends \RuntimeException
{
}

final class Client
{
    /** The number of seconds that the time of a webhook's signature may differ from this computer's clock. */
    public const WEBHOOK_TOLERANCE = 300;

    private const DECLARATION = [
        'companyReference', 'source', 'documentReference', 'version', 'previousVersion', 'sha256', 'sizeBytes', 'mimeType',
        'generatedAt', 'reservationId',
    ];
    private const MAX_ANSWER = 8 << 20; // bytes
    private const MAX_HEADERS = 128 << 10; // bytes, with those of interim answers (1xx)

    private readonly string $origin;

    /**
     * @param string $baseUrl the origin of the service, without /api/v1
     * @param ?string $apiKey compare and receipt need none and never send it
     * @param float $timeout seconds for a whole request, at most 300
     * @param ?string $authority a PEM file with the certificates of a private authority
     */
    public function __construct(
        string $baseUrl,
        #[\SensitiveParameter] private readonly ?string $apiKey = null,
        private readonly float $timeout = 30.0,
        private readonly ?string $authority = null,
    ) {
        if ($apiKey !== null && preg_match('/^[!-~]+$/D', $apiKey) !== 1) {
            throw new \InvalidArgumentException('apiKey must be the text of a key, without spaces or line breaks');
        }
        if (!($timeout > 0 && $timeout <= 300)) {
            throw new \InvalidArgumentException('timeout must be more than 0 and at most 300 seconds');
        }
        $this->origin = self::origin($baseUrl);
    }

    /**
     * Makes the declaration of a finished file from its bytes. Nothing may change the file afterwards. Save the result with
     * the document and send it unchanged, however often.
     *
     * @return array<string, mixed>
     */
    public static function declaration(
        string $path,
        string $companyReference,
        string $source,
        string $documentReference,
        int $version,
        string $mimeType,
        \DateTimeInterface $generatedAt,
        ?int $previousVersion = null,
        ?string $reservationId = null,
    ): array {
        [$sha256, $size] = self::hash($path);
        $generated = \DateTimeImmutable::createFromInterface($generatedAt)->setTimezone(new \DateTimeZone('UTC'));
        $declaration = [
            'companyReference' => $companyReference, 'source' => $source, 'documentReference' => $documentReference,
            'version' => $version, 'previousVersion' => $previousVersion, 'sha256' => $sha256, 'sizeBytes' => $size,
            'mimeType' => $mimeType, 'generatedAt' => $generated->format('Y-m-d\TH:i:s.u\Z'),
        ];
        return $reservationId === null ? $declaration : $declaration + ['reservationId' => $reservationId];
    }

    /**
     * Reserves the verification link of a version before its bytes are final. If this fails, emit the document without the
     * link. A reservation is no evidence. Needs integrity:write.
     *
     * @return array<string, mixed> with verificationUrl, and publicId for the member reservationId of the declaration
     */
    public function reserve(string $companyReference, string $source, string $documentReference, int $version): array
    {
        return $this->data('POST', '/api/v1/integrity/reservations', [
            'companyReference' => $companyReference, 'source' => $source, 'documentReference' => $documentReference,
            'version' => $version,
        ]);
    }

    /**
     * Registers a version. The same declaration again is a replay and consumes nothing. If outcomeUnknown is true after a
     * Failure, keep the declaration and call reconcile later. Needs integrity:write.
     *
     * @param array<string, mixed> $declaration
     * @return array<string, mixed> the record, with publicId and verificationUrl
     */
    public function register(array $declaration): array
    {
        $unknown = array_diff(array_keys($declaration), self::DECLARATION);
        if ($unknown !== []) {
            throw new \InvalidArgumentException('declaration: there is no member ' . reset($unknown));
        }
        return $this->data('POST', '/api/v1/integrity/records', $declaration);
    }

    /**
     * Settles a registration whose outcome is unknown, with the saved declaration: looks the version up and sends the
     * declaration again, which registers it or replays it. A different declaration of the same version is Refused with
     * VERSION_CONFLICT. After Unanswered, call it again later.
     *
     * @param array<string, mixed> $declaration
     * @return array<string, mixed>
     */
    public function reconcile(array $declaration): array
    {
        try {
            $this->lookup(
                $declaration['companyReference'], $declaration['source'], $declaration['documentReference'], $declaration['version'],
            );
        } catch (Refused $error) {
            if ($error->errorCode !== 'RECORD_NOT_FOUND') {
                throw $error;
            }
        }
        return $this->register($declaration);
    }

    /**
     * Returns the record of a version. An unknown version is Refused with RECORD_NOT_FOUND. Needs integrity:read.
     *
     * @return array<string, mixed>
     */
    public function lookup(string $companyReference, string $source, string $documentReference, int $version): array
    {
        return $this->data('GET', '/api/v1/integrity/lookup?' . http_build_query([
            'companyReference' => $companyReference, 'source' => $source, 'documentReference' => $documentReference,
            'version' => $version,
        ], '', '&', PHP_QUERY_RFC3986));
    }

    /** Returns the signed evidence of a record, as bytes to be saved unchanged. Needs integrity:read. */
    public function evidence(string $publicId): string
    {
        return $this->ask('GET', '/api/v1/integrity/records/' . self::segment($publicId) . '/evidence', member: 'payload')[0];
    }

    /**
     * Returns the evidence of 1 to 100 records, each once, in one request of the minute. Needs integrity:read. The results
     * are in the order of the ids. To keep evidence, save the JSON of data: the signed bytes are its texts.
     * INCLUSION_PENDING means that the proof of inclusion may still come: ask again, or let the service hold the request
     * open until all proofs are there.
     *
     * @param list<string> $publicIds
     * @param int $wait seconds to hold the request open, at most 25
     * @return list<array<string, mixed>> status, and data, the evidence, or error
     */
    public function evidenceOfMany(array $publicIds, int $wait = 0): array
    {
        $body = ['publicIds' => array_values($publicIds), 'wait' => $wait];
        $held = max(0, min($wait, 25));
        $data = $this->ask('POST', '/api/v1/integrity/records/evidence', $body, reads: true, held: $held)[1];
        $results = is_array($data['results'] ?? null) ? $data['results'] : [];
        $judged = array_filter($results, static fn(mixed $one): bool => is_array($one) && is_int($one['status'] ?? null)
            && (is_array($one['data'] ?? null) || is_array($one['error'] ?? null)));
        if (!array_is_list($judged) || count($judged) !== count($results) || count($results) !== count($publicIds)) {
            throw new Unanswered('the answer has not one result for each record');
        }
        return $results;
    }

    /**
     * Returns the transparency log proof of a record (C2SP tlog-proof), with its references, as bytes to be saved
     * unchanged in a file .tlog-proof. Needs integrity:read. INCLUSION_PENDING means that the proof may still come: ask
     * again, or let the service hold the request open.
     *
     * @param int $wait seconds to hold the request open, at most 25
     */
    public function tlogProof(string $publicId, int $wait = 0): string
    {
        $path = '/api/v1/integrity/records/' . self::segment($publicId) . '/tlog-proof?wait=' . $wait;
        return $this->file($path, false, max(0, min($wait, 25)), "c2sp.org/tlog-proof@v1\n");
    }

    /** Returns the transparency log proof of a record without its references. No key is sent. */
    public function publicTlogProof(string $publicId): string
    {
        $path = '/api/public/integrity/' . self::segment($publicId) . '/tlog-proof';
        return $this->file($path, true, 0, "c2sp.org/tlog-proof@v1\n");
    }

    /**
     * Returns the evidence report of a record, a PDF for people with the evidence attached. Needs integrity:read.
     *
     * @param string $language es or en
     */
    public function report(string $publicId, string $language = 'en'): string
    {
        $path = '/api/v1/integrity/records/' . self::segment($publicId) . '/report?lang=' . rawurlencode($language);
        return $this->file($path, false, 0, '%PDF-');
    }

    /** Returns the evidence report of a record without its references and other versions. No key is sent. */
    public function publicReport(string $publicId, string $language = 'en'): string
    {
        $path = '/api/public/integrity/' . self::segment($publicId) . '/report?lang=' . rawurlencode($language);
        return $this->file($path, true, 0, '%PDF-');
    }

    /** Returns a file that begins with these bytes. */
    private function file(string $path, bool $public, int $held, string $begins): string
    {
        $sent = true;
        $answer = $this->send('GET', $path, null, $public, $held, $sent);
        if (!str_starts_with($answer, $begins)) {
            throw new Unanswered('the answer is not of this service');
        }
        return $answer;
    }

    /** Returns the public receipt of a record, as bytes to be saved unchanged. No key is sent. */
    public function receipt(string $publicId): string
    {
        $path = '/api/public/integrity/' . self::segment($publicId) . '/receipt';
        return $this->ask('GET', $path, public: true, member: 'payload')[0];
    }

    /**
     * Compares a SHA-256 (64 lower-case hexadecimal digits) with a record. No key is sent. Accept a file only if verified is
     * true. An unknown link is Refused with RECORD_NOT_FOUND; every other Failure means that nothing could be compared,
     * which is not a mismatch.
     *
     * @return array<string, mixed> with result and verified
     */
    public function compare(string $publicId, string $sha256): array
    {
        $path = '/api/public/integrity/' . self::segment($publicId) . '?sha256=' . rawurlencode($sha256);
        $data = $this->data('GET', $path, public: true);
        $verified = $data['verified'] ?? null;
        if (
            ($data['publicId'] ?? null) !== $publicId || !is_bool($verified)
            || $verified && ($data['result'] ?? null) !== 'MATCH_CURRENT'
        ) {
            throw new Unanswered('the answer is not about this record');
        }
        return $data;
    }

    /**
     * Compares a file, which is hashed here and never sent, with a record: see compare.
     *
     * @return array<string, mixed>
     */
    public function compareFile(string $publicId, string $path): array
    {
        return $this->compare($publicId, self::hash($path)[0]);
    }

    /**
     * Checks the header Service-Signature of a webhook over the raw body, in constant time, and returns the event. Store the
     * event's id and its effect in one transaction: a delivery may arrive twice and in any order.
     *
     * @param string|list<string> $secrets several while a secret is being rotated
     * @param ?int $now Unix seconds, by default this computer's clock
     * @return array<string, mixed>
     * @throws BadSignature
     */
    public static function verifyWebhook(
        string $header,
        string $body,
        #[\SensitiveParameter] string|array $secrets,
        ?int $now = null,
    ): array {
        if (preg_match_all('/(?:^|,)t=([0-9]{1,12})(?=,|$)/D', $header, $times) !== 1) {
            throw new BadSignature('Service-Signature must have one time t=<unix seconds>');
        }
        $at = $times[1][0];
        if (abs(($now ?? time()) - (int) $at) > self::WEBHOOK_TOLERANCE) {
            throw new BadSignature(sprintf(
                "the signature's time is more than %d seconds from this computer's clock", self::WEBHOOK_TOLERANCE,
            ));
        }
        preg_match_all('/(?:^|,)v1=([0-9a-f]{64})(?=,|$)/D', $header, $given);
        $matches = false;
        foreach ((array) $secrets as $secret) {
            if ($secret === '') {
                throw new \InvalidArgumentException('secrets: a secret must not be empty');
            }
            foreach ($given[1] as $signature) {
                $matches = hash_equals(hash_hmac('sha256', "$at.$body", $secret), $signature) || $matches;
            }
        }
        if (!$matches) {
            throw new BadSignature('the signature does not belong to the body under any of the secrets');
        }
        $event = self::object($body);
        if ($event === null || !is_string($event['id'] ?? null) || ($event['version'] ?? null) !== 1) {
            throw new BadSignature('the body must be an event of version 1 of the protocol');
        }
        return $event;
    }

    /** @return array<string, mixed> the member data of a success */
    private function data(string $method, string $path, ?array $body = null, bool $public = false): array
    {
        return $this->ask($method, $path, $body, $public)[1];
    }

    /**
     * @param bool $reads a POST that changes nothing
     * @param int $held seconds that the service may hold the request open
     * @return array{string, mixed} the bytes of a success and its member
     */
    private function ask(
        string $method,
        string $path,
        ?array $body = null,
        bool $public = false,
        string $member = 'data',
        bool $reads = false,
        int $held = 0,
    ): array {
        $sent = true;
        try {
            $answer = $this->send($method, $path, $body, $public, $held, $sent);
            $found = self::object($answer)[$member] ?? null;
            if ($member === 'data' ? !is_array($found) || array_is_list($found) : !is_string($found) || $found === '') {
                throw new Unanswered('the answer is not of this service');
            }
            return [$answer, $found];
        } catch (Unanswered $error) {
            $error->outcomeUnknown = $method !== 'GET' && !$reads && $sent;
            throw $error;
        }
    }

    /** Sends one request and returns the body of a success. It sets $sent to false if the request was never sent. */
    private function send(string $method, string $path, ?array $body, bool $public, int $held, bool &$sent): string
    {
        $headers = [
            'Accept: application/json', 'Accept-Encoding: identity', 'Expect:', 'Integrity-Version: integrity-php/' . VERSION,
        ];
        if (!$public) {
            if ($this->apiKey === null) {
                throw new \InvalidArgumentException('apiKey must be given: only public questions can be asked without one');
            }
            $headers[] = 'Authorization: Bearer ' . $this->apiKey;
        }
        $curl = curl_init($this->origin . $path);
        if ($body !== null) {
            $headers[] = 'Content-Type: application/json';
            curl_setopt($curl, CURLOPT_POSTFIELDS, self::json($body));
        }
        $answer = '';
        $received = [];
        $headerBytes = 0;
        curl_setopt_array($curl, [
            CURLOPT_CUSTOMREQUEST => $method,
            CURLOPT_HTTPHEADER => $headers,
            CURLOPT_USERAGENT => 'integrity-php/' . VERSION,
            CURLOPT_HTTP_VERSION => CURL_HTTP_VERSION_1_1,
            CURLOPT_PROTOCOLS => CURLPROTO_HTTPS | CURLPROTO_HTTP,
            CURLOPT_FOLLOWLOCATION => false,
            CURLOPT_PROXY => '',
            CURLOPT_FORBID_REUSE => true, // libcurl repeats a request by itself on a connection that it used before
            CURLOPT_TIMEOUT_MS => (int) ceil(($this->timeout + $held) * 1000),
            CURLOPT_CONNECTTIMEOUT_MS => (int) ceil($this->timeout * 1000),
            CURLOPT_NOSIGNAL => true,
            CURLOPT_SSL_VERIFYPEER => true,
            CURLOPT_SSL_VERIFYHOST => 2,
            CURLOPT_HEADERFUNCTION => static function ($curl, string $line) use (&$received, &$headerBytes): int {
                $headerBytes += strlen($line);
                if (str_starts_with($line, 'HTTP/')) {
                    $received = []; // those before belonged to an interim answer
                } elseif (str_contains($line, ':')) {
                    [$name, $value] = explode(':', $line, 2);
                    $received[strtolower(trim($name))] = trim($value);
                }
                return $headerBytes > self::MAX_HEADERS ? -1 : strlen($line);
            },
            CURLOPT_WRITEFUNCTION => static function ($curl, string $block) use (&$answer): int {
                $answer .= $block;
                return strlen($answer) > self::MAX_ANSWER ? -1 : strlen($block);
            },
        ]);
        if ($this->authority !== null) {
            curl_setopt($curl, CURLOPT_CAINFO, $this->authority);
        }
        $ended = curl_exec($curl);
        $sent = curl_getinfo($curl, CURLINFO_REQUEST_SIZE) > 0;
        if ($ended === false) {
            throw new Unanswered('no answer: ' . curl_error($curl), retryable: true);
        }
        $status = curl_getinfo($curl, CURLINFO_RESPONSE_CODE);
        $retryAfter = self::seconds($received['retry-after'] ?? '');
        if (strtolower($received['content-encoding'] ?? 'identity') !== 'identity') {
            throw new Unanswered('the answer is compressed, although the client did not ask for it', $status);
        }
        if (in_array($status, [200, 201, 202], true)) {
            return $answer;
        }
        $envelope = self::object($answer);
        $error = $envelope['error'] ?? null;
        $requestId = $envelope['meta']['requestId'] ?? null;
        $requestId = is_string($requestId) ? $requestId : null;
        if ($status < 400 || !is_array($error) || !is_string($error['code'] ?? null)) {
            $reason = $status >= 300 && $status < 400 ? 'redirects are not followed' : 'the answer is not of this service';
            throw new Unanswered("status $status: $reason", $status, null, $status >= 500, $retryAfter);
        }
        $code = $error['code'];
        $detail = is_string($error['detail'] ?? null) ? $error['detail'] : '';
        $retryable = ($error['retryable'] ?? null) === true || $status === 408;
        if ($status >= 500) {
            throw new Unanswered("status $status $code: $detail", $status, $code, $retryable, $retryAfter, $requestId);
        }
        $fields = is_array($error['errors'] ?? null) ? array_values(array_filter($error['errors'], is_array(...))) : [];
        $message = "$status $code: $detail";
        foreach ($fields as $field) {
            $message .= sprintf('; %s: %s', self::text($field['pointer'] ?? ''), self::text($field['message'] ?? ''));
        }
        $refused = new Refused($message, $status, $code, $retryable, $retryable ? $retryAfter : null, $requestId);
        $refused->fields = $fields;
        $refused->existing = is_array($error['existing'] ?? null) ? $error['existing'] : null;
        throw $refused;
    }

    /** @param array<string, mixed> $members */
    private static function json(array $members): string
    {
        foreach ($members as $name => $value) {
            if (preg_match('//u', is_array($value) ? implode(' ', $value) : (string) $value) !== 1) {
                throw new \InvalidArgumentException("$name must be UTF-8");
            }
        }
        return json_encode($members, JSON_THROW_ON_ERROR | JSON_UNESCAPED_UNICODE | JSON_UNESCAPED_SLASHES);
    }

    private static function text(mixed $value): string
    {
        return is_string($value) ? $value : '';
    }

    /** @return array{string, int} the SHA-256 and the size in bytes of a regular file, read once */
    private static function hash(string $path): array
    {
        // Opening a pipe would wait for a writer without end.
        $file = is_file($path) ? fopen($path, 'rb') : false;
        if ($file === false) {
            throw new \InvalidArgumentException("path must be a regular file that can be read: $path");
        }
        try {
            $context = hash_init('sha256');
            $size = hash_update_stream($context, $file);
            if (!feof($file)) {
                throw new \RuntimeException("the file cannot be read to its end: $path");
            }
            return [hash_final($context), $size];
        } finally {
            fclose($file);
        }
    }

    /** @return ?int seconds, from both forms of Retry-After (RFC 9110, section 10.2.3) */
    private static function seconds(string $retryAfter): ?int
    {
        if (preg_match('/^[0-9]{1,9}$/D', $retryAfter) === 1) {
            return (int) $retryAfter;
        }
        $at = \DateTimeImmutable::createFromFormat('D, d M Y H:i:s \G\M\T', $retryAfter, new \DateTimeZone('UTC'));
        return $at === false ? null : max(0, $at->getTimestamp() - time());
    }

    /** Accepts https://host[:port], and http to a loopback address. */
    private static function origin(string $baseUrl): string
    {
        $parts = parse_url($baseUrl);
        $scheme = strtolower($parts['scheme'] ?? '');
        $host = strtolower($parts['host'] ?? '');
        $other = is_array($parts) ? array_diff_key($parts, ['scheme' => 0, 'host' => 0, 'port' => 0, 'path' => 0]) : [];
        if (!in_array($scheme, ['https', 'http'], true) || $host === '' || $other !== [] || trim($parts['path'] ?? '', '/') !== '') {
            throw new \InvalidArgumentException(
                'baseUrl must be an origin such as https://ledger.example, without /api/v1, user or query',
            );
        }
        $loopback = $host === 'localhost' || $host === '[::1]'
            || preg_match('/^127\./', $host) === 1 && filter_var($host, FILTER_VALIDATE_IP) !== false;
        if ($scheme === 'http' && !$loopback) {
            throw new \InvalidArgumentException("baseUrl must be https; http is for this computer's own addresses only");
        }
        return "$scheme://$host" . (isset($parts['port']) ? ':' . $parts['port'] : '');
    }

    private static function segment(string $text): string
    {
        if (in_array($text, ['', '.', '..'], true)) {
            throw new \InvalidArgumentException('publicId must be an id of the service');
        }
        return rawurlencode($text);
    }

    /** @return ?array<string, mixed> the object, or null if the text is no JSON object */
    private static function object(string $text): ?array
    {
        $value = json_decode($text, true, 64);
        return is_array($value) && !array_is_list($value) ? $value : null;
    }
}
