/** The client of Integrity Ledger @VERSION@. Names and rules are defined by the API contract, `/api/integrity-openapi` and `/api/openapi`. */

/** Of one call. `signal` aborts it; `timeout` is in milliseconds, 1 to 600000, and covers the whole answer. */
export interface CallOptions {
  signal?: AbortSignal;
  timeout?: number;
}

export interface ClientOptions {
  /** Origin of the service without /api/v1, such as https://ledger.example. http is accepted for loopback only. */
  baseUrl: string | URL;
  /** For servers only: refused in a browser. Without it only compare, compareBytes and receipt work. */
  apiKey?: string;
  /** Milliseconds that a call may take: 30000 unless told. */
  timeout?: number;
}

/** RFC 6901 pointer of a member, a code, and what would be right. */
export interface FieldError {
  pointer: string;
  code: string;
  message: string;
}

/** What identifies a version; it never changes. */
export interface ReservationRequest {
  companyReference: string;
  source: string;
  documentReference: string;
  version: number;
}

export interface Declaration {
  companyReference: string;
  source: string;
  documentReference: string;
  version: number;
  previousVersion?: number | null;
  /** 64 hexadecimal characters, of the final bytes. */
  sha256: string;
  sizeBytes: number;
  mimeType: string;
  /** ISO 8601 with an offset, such as 2026-11-20T14:03:00Z, 2026-11-20T14:03+01:00, 2026-11-20T15:03:00,5+0100 or 20261120T140300Z. */
  generatedAt: string;
  reservationId?: string | null;
}

export interface Company {
  id: string;
  reference: string;
  status: "active" | "closed";
  createdAt: string;
  closedAt: string | null;
}

export interface CreatedCompany extends Company {
  replayed: boolean;
}

export interface Companies {
  companies: Company[];
  nextCursor: string | null;
  hasMore: boolean;
}

export interface Access {
  companyId: string;
  keyId: string;
  enabled: boolean;
  updatedAt: string;
}

export interface WebhookAccess {
  companyId: string;
  webhookId: string;
  enabled: boolean;
  updatedAt: string;
}

export interface NamedAccess extends Access {
  /** Of the key; null where it has none, or it was erased. */
  name: string | null;
}

/** A page of the keys that may use a company, and of those that no longer may. */
export interface KeysAccess {
  access: NamedAccess[];
  nextCursor: string | null;
  hasMore: boolean;
}

/** A page of the destinations that hear of a company, and of those that no longer do. */
export interface WebhooksAccess {
  webhooks: WebhookAccess[];
  nextCursor: string | null;
  hasMore: boolean;
}

export type WebhookType = "integrity.registered" | "integrity.superseded" | "integrity.revoked";

/** A destination; url is null once erased. */
export interface WebhookDestination {
  id: string;
  url: string | null;
  description: string | null;
  types: WebhookType[];
  status: "active" | "disabled";
  disabledReason: "gone" | "failing" | null;
  failingSince: string | null;
  authorizedCompanies: number;
  previousSecretUntil: string | null;
  createdAt: string;
  updatedAt: string;
}

export interface WebhookWithSecret extends WebhookDestination {
  /** No other answer shows it. */
  secret: string;
}

export interface WebhookDestinations {
  webhooks: WebhookDestination[];
}

export interface WebhookDeleted {
  id: string;
  deleted: true;
}

/** One event for one destination; sequence and companyId are null of a test. */
export interface Delivery {
  id: string;
  webhookId: string;
  eventId: string;
  type: WebhookType | "webhook.test";
  sequence: number | null;
  companyId: string | null;
  status: "pending" | "delivered" | "exhausted" | "suppressed" | "cancelled";
  attempts: number;
  createdAt: string;
  lastAttemptAt: string | null;
  nextAttemptAt: string | null;
  finishedAt: string | null;
  responseStatus: number | null;
  reason: string | null;
}

export interface Deliveries {
  deliveries: Delivery[];
  nextCursor: string | null;
  hasMore: boolean;
}

/** Where nextSequence is set, go on from there. */
export interface Replayed {
  dryRun: boolean;
  count: number;
  nextSequence: number | null;
}

export interface Reservation {
  publicId: string;
  verificationUrl: string;
  expiresAt: string;
  status: "pending" | "expired" | "released" | "finalized";
  replayed: boolean;
  consumption: { applied: 0 };
}

/** A version that was reserved and is not registered. Of a released one, expiresAt is when it was released. */
export interface ReservedVersion {
  publicId: string;
  verificationUrl: string;
  companyReference: string;
  source: string;
  documentReference: string;
  version: number;
  status: "pending" | "expired" | "released";
  expiresAt: string;
}

export interface ReleasedReservation extends ReservedVersion {
  /** True where it had been released before, or had expired. */
  replayed: boolean;
}

export interface Reservations {
  reservations: ReservedVersion[];
  nextCursor: string | null;
  hasMore: boolean;
}

export type RecordStatus = "current" | "superseded" | "revoked";

export interface RecordView {
  id: string;
  publicId: string;
  sha256: string;
  companyReference: string;
  source: string;
  documentReference: string;
  version: number;
  previousVersion: number | null;
  sizeBytes: number;
  mimeType: string;
  generatedAt: string;
  /** By the service's own clock: not an independent trusted timestamp. */
  receivedAt: string;
  status: RecordStatus;
  supersededByVersion: number | null;
  revokedAt: string | null;
  verificationUrl: string;
  evidenceUrl: string;
}

export interface RevokedRecord extends RecordView {
  replayed: boolean;
}

export interface Usage {
  period: string;
  limit: number | null;
  used: number;
  remaining: number | null;
  resetsAt: string;
}

export interface CompanyUsage {
  companyReference: string;
  used: number;
}

export interface Registration extends RecordView {
  /** True where this very declaration had been registered before; nothing is consumed then. */
  replayed: boolean;
  consumption: { applied: 0 | 1 };
  usage: Usage;
  companyContribution: CompanyUsage;
}

/** The error of an item of a batch, as the service writes it. */
export interface ItemError {
  type: string;
  title: string;
  status: number;
  detail: string;
  code: string;
  retryable: boolean;
  errors: FieldError[];
  existing?: { publicId: string; receivedAt: string };
  retryAfter?: number;
}

/** One declaration's outcome; each is decided alone. */
export interface BatchItem {
  status: number;
  data: Registration | null;
  error: ItemError | null;
}

export interface BatchResult {
  results: BatchItem[];
}

/** Which records are listed. */
export type RecordsQuery = { limit?: number } & (
  | { sha256: string }
  | {
      companyReference: string;
      source?: string;
      documentReference?: string;
      status?: RecordStatus;
      /** RFC 3339 times of receivedAt: from the one on, and before the other. */
      receivedFrom?: string;
      receivedTo?: string;
    }
);

export interface Records {
  records: RecordView[];
  nextCursor: string | null;
  hasMore: boolean;
}

export interface FeedEvent {
  /** Stable: the key to deduplicate by, the same as the webhook's. */
  id: string;
  sequence: number;
  type: "integrity.registered" | "integrity.superseded" | "integrity.revoked";
  occurredAt: string;
  publicId: string;
  /** Declared for the version, as in its record. Services before November 2026 do not send it. */
  sha256: string;
  companyReference: string;
  source: string;
  documentReference: string;
  version: number;
  recordStatus: RecordStatus;
}

export interface Feed {
  events: FeedEvent[];
  /** Store it in the same transaction as the events, and give it back as `after`. */
  nextCursor: number;
  hasMore: boolean;
  /** Only over all companies: the organization's last sequence when the page was read. */
  head?: number;
  /** Only over all companies: those that the key was granted by events of the page. `changes` gives their earlier events before the page. */
  grantedCompanies?: { companyReference: string; sequence: number }[];
}

export interface ChangesPage extends Feed {
  /** Of the history that nextCursor belongs to: every restore of the service's database gives another. With a cursor of another epoch the service answers CURSOR_AHEAD. */
  epoch: number;
}

export interface IntegrityUsage {
  plan: string;
  period: string;
  organization: { limit: number | null; unlimited: boolean; used: number; remaining: number | null; resetsAt: string };
  /** The backfill allowance, charged before the month; an older service does not send it. */
  backfill: { limit: number; used: number; remaining: number };
  companies: CompanyUsage[];
  /** limit and used are null where the warning was given before the ledger kept them. */
  warnings: {
    allowance: "versions" | "webhookAttempts" | "pendingReservations" | "unfinalizedIdentities";
    percent: 80 | 95 | 100;
    limit: number | null;
    used: number | null;
    reachedAt: string;
  }[];
}

/** One new version, with the event of its registration. */
export interface UsageEntry {
  eventId: string;
  sequence: number;
  occurredAt: string;
  publicId: string;
  companyReference: string;
  source: string;
  documentReference: string;
  version: number;
}

export interface UsageEntries {
  period: string;
  throughSequence: number;
  /** used = visible + notVisible; only the visible ones are listed: the companies granted to the key. */
  organization: { used: number; visible: number; notVisible: number };
  entries: UsageEntry[];
  nextCursor: string | null;
  hasMore: boolean;
}

/** An allowance of the month; null: without a limit. */
export interface MonthlyLimit {
  limit: number | null;
  used: number;
  remaining: number | null;
  resetsAt: string;
}

/** The organization of a key, with its allowance left in this month. */
export interface Organization {
  id: string;
  name: string;
  plan: string;
  limits: { versions: MonthlyLimit; requests: MonthlyLimit; registrations: MonthlyLimit; webhookAttempts: MonthlyLimit };
  createdAt: string;
}

export type Role = "owner" | "admin" | "reviewer" | "analyst" | "viewer";

/** Without expiresAt a key lives for a year, but no longer than the key that makes it. */
export interface ApiKeyRequest {
  name: string;
  scopes: string[];
  expiresAt?: string | null;
  source?: string | null;
  /** Addresses or networks that its requests must come from. */
  networks?: string[];
  maxVersionStep?: number | null;
  /** References of companies that it may use. */
  companies?: string[];
}

/** A key, never with its text. lastUsedAt is to the minute. */
export interface ApiKey {
  id: string;
  name: string | null;
  memberId: string;
  scopes: string[];
  source: string | null;
  networks: string[];
  maxVersionStep: number | null;
  grants: { companies: string[]; hasMore: boolean };
  createdBy: string | null;
  createdAt: string;
  expiresAt: string;
  lastUsedAt: string | null;
  revokedAt: string | null;
}

export interface ApiKeys {
  keys: ApiKey[];
  nextCursor: string | null;
  hasMore: boolean;
}

export interface CreatedApiKey extends ApiKey {
  /** The text of the key: no other answer shows it. */
  key: string;
}

export interface RotatedApiKey extends CreatedApiKey {
  formerKey: ApiKey;
}

export interface Member {
  id: string;
  email: string | null;
  role: Role;
  status: "invited" | "active" | "disabled" | "ended";
  createdAt: string;
  invitationExpiresAt: string | null;
}

export interface Members {
  members: Member[];
  nextCursor: string | null;
  hasMore: boolean;
}

export interface InvitedMember extends Member {
  /** The address was invited before; that link works no more. */
  renewed: boolean;
  mailed: boolean;
  /** The link, in each language; null where the service mails it. */
  invitationUrls: { es: string; en: string } | null;
}

export interface Jwk {
  kty: "OKP";
  crv: "Ed25519";
  x: string;
}

export interface Signed {
  /** Canonical JSON, exactly the signed text. */
  payload: string;
  signature: string;
  keyId: string;
  publicKeyJwk: Jwk;
  fingerprintSha256: string;
}

/** A page of what timestamp authorities signed over checkpoints of the log. */
export interface LogTimestamps {
  timestamps: { treeSize: number; authority: string; genTime: string; checkpoint: string; token: string }[];
  hasMore: boolean;
}

/** The public receipt: verify it offline against keys that you pinned. */
export interface Receipt extends Signed {
  contract: "integrity-evidence-v1";
}

export interface References {
  companyReference: string;
  source: string;
  documentReference: string;
  version: number;
  salt: string;
}

export interface Inclusion {
  leaf: string;
  leafIndex: number;
  treeSize: number;
  hashes: string[];
  checkpoint: string;
}

/** The token of a timestamp authority (RFC 3161): the record existed before genTime, says the authority. */
export interface StampToken {
  authority: string;
  genTime: string;
  token: string;
}

/** A checkpoint of the log that holds the record, and the tokens that stamp it. */
export interface Timestamp {
  leafIndex: number;
  treeSize: number;
  hashes: string[];
  checkpoint: string;
  tokens: StampToken[];
}

/** The private export. JSON.stringify writes a file that every verifier reads. */
export interface Evidence extends Receipt {
  references: References;
  /** The present state, dated; absent where a moment was asked for. */
  statusObservation?: Signed;
  /** The state as of the moment that was asked for: history, never the present state. */
  statusAsOf?: Signed;
  inclusion?: Inclusion;
  timestamps?: Timestamp[];
}

/** What was answered for one of many records. */
export interface EvidenceItem {
  status: number;
  data: (Evidence & { statusObservation: Signed }) | null;
  error: ItemError | null;
}

export interface EvidenceResults {
  /** In the order of the public ids. */
  results: EvidenceItem[];
}

/** The three things are reported apart: do not collapse them, and take no error for a mismatch. */
export interface Comparison {
  publicId: string;
  result:
    | "MATCH_CURRENT"
    | "MATCH_HISTORICAL"
    | "HASH_MISMATCH"
    | "RECORD_REVOKED"
    | "FILE_NOT_COMPARED"
    | "SIGNATURE_INVALID"
    | "REGISTRATION_PENDING";
  /** True for MATCH_CURRENT only. */
  verified: boolean;
  checks: {
    fileMatch: boolean | null;
    signature: "valid" | "invalid" | "untrusted" | null;
    versionState: RecordStatus | "pending" | null;
  };
  receivedAt: string | null;
  checkedAt: string;
  keyId: string | null;
  receiptUrl: string | null;
  limitsUrl: string;
  /**
   * Only of a former public id: its record was lost and the version registered again. publicId names the record that is
   * kept; the statement is signed, contract integrity-alias-v1.
   */
  alias?: { publicId: string; statement: Signed };
  publisher?: Publisher;
}

/** What the organization of a record has proven and said about itself today, never at the time of the registration. */
export interface Publisher {
  domains: { domain: string; method: "dns" | "https"; checkedAt: string }[];
  name: string | null;
  statedAt: string | null;
}

/** Accept a certificate's file only where `verified === true`. */
export interface Verification {
  publicId: string;
  verified: boolean;
  hashMatches: boolean | null;
  signatureValid: boolean;
  certificateCurrent: boolean;
  certificateStatus: "valid" | "revoked" | "replaced";
  reason: "MATCH" | "HASH_MISMATCH" | "SIGNATURE_INVALID" | "CERTIFICATE_REVOKED" | "CERTIFICATE_REPLACED";
  documentUploaded: false;
  checkedAt: string;
}

/** Codes of the client itself; every other code is the service's (`/errors/{code}`). */
export type ClientCode = "NETWORK" | "TIMEOUT" | "ABORTED" | "REDIRECT_REFUSED" | "UNREADABLE_ANSWER" | "UNSUPPORTED_RUNTIME";

/** Why a call has no result. It is never proof that a document was changed. */
export class IntegrityError extends Error {
  private constructor();
  readonly code: ClientCode | (string & {});
  /** HTTP status; null where there was no answer. */
  readonly status: number | null;
  /** Whether the same request can succeed later. The client never sends it again by itself. */
  readonly retryable: boolean;
  /** Seconds to wait, where the service says so. */
  readonly retryAfter: number | null;
  /** For the service's operator. */
  readonly requestId: string | null;
  /** Every invalid member at once. */
  readonly fields: FieldError[];
  /** The record behind a VERSION_CONFLICT. */
  readonly existing: { publicId: string; receivedAt: string } | null;
  /** A write may have been done: look the identity up, then send the exact saved declaration again. */
  readonly outcomeUnknown: boolean;
}

/** Bytes of a file. Nothing but their hash and length ever leaves. */
export type Bytes = ArrayBuffer | ArrayBufferView;

/** The SHA-256, computed here: 64 lower-case hexadecimal characters. */
export function sha256(bytes: Bytes): Promise<string>;

/** A declaration of the final bytes of a file: hash and length are computed here. */
export function finalBytesDeclaration(
  of: Omit<Declaration, "sha256" | "sizeBytes"> & { bytes: Bytes },
): Promise<Declaration>;

/**
 * Every method makes one request, rejects with an IntegrityError, and never repeats it. A wrong argument is a TypeError.
 * A list has two: one that ends in Page asks for one page, the other walks all of them.
 */
export class Client {
  constructor(options: ClientOptions);

  /** Hashes the bytes here and compares with a certificate. Scope verify:read. */
  verifyBytes(of: { publicId: string; bytes: Bytes }, options?: CallOptions): Promise<Verification>;
  verifyHash(of: { publicId: string; sha256: string }, options?: CallOptions): Promise<Verification>;

  /** Scope integrity:admin. Creating grants nothing, not even to this key. */
  createCompany(of: { reference: string }, options?: CallOptions): Promise<CreatedCompany>;
  /** Scope integrity:read: the companies granted to this key; `all` needs integrity:admin. */
  companiesPage(of?: { all?: boolean; status?: Company["status"]; limit?: number; after?: string }, options?: CallOptions): Promise<Companies>;
  companies(of?: { all?: boolean; status?: Company["status"]; limit?: number }, options?: CallOptions): AsyncGenerator<Companies, void, void>;
  /** Scope integrity:admin. A closed company takes no new reservation or registration; everything else of it goes on. */
  setCompanyStatus(of: { companyId: string; status: Company["status"] }, options?: CallOptions): Promise<Company>;
  /** Scope integrity:admin: the keys that may use the company, and those that no longer may. */
  companyAccessPage(of: { companyId: string; limit?: number; after?: string }, options?: CallOptions): Promise<KeysAccess>;
  companyAccess(of: { companyId: string; limit?: number }, options?: CallOptions): AsyncGenerator<KeysAccess, void, void>;
  /** The same for webhook destinations. */
  companyWebhooksPage(of: { companyId: string; limit?: number; after?: string }, options?: CallOptions): Promise<WebhooksAccess>;
  companyWebhooks(of: { companyId: string; limit?: number }, options?: CallOptions): AsyncGenerator<WebhooksAccess, void, void>;
  /** Scope integrity:admin. `enabled: false` takes the grant away. */
  grantKey(of: { companyId: string; keyId: string; enabled?: boolean }, options?: CallOptions): Promise<Access>;
  grantWebhook(of: { companyId: string; webhookId: string; enabled?: boolean }, options?: CallOptions): Promise<WebhookAccess>;

  /** Scope integrity:admin, as everything about destinations. Another one with each call; it hears of no company until grantWebhook. */
  createWebhook(of: { url: string; description?: string; types?: WebhookType[] }, options?: CallOptions): Promise<WebhookWithSecret>;
  webhooks(options?: CallOptions): Promise<WebhookDestinations>;
  webhook(of: { webhookId: string }, options?: CallOptions): Promise<WebhookDestination>;
  updateWebhook(
    of: { webhookId: string; url?: string; description?: string | null; types?: WebhookType[]; enabled?: boolean },
    options?: CallOptions,
  ): Promise<WebhookDestination>;
  deleteWebhook(of: { webhookId: string }, options?: CallOptions): Promise<WebhookDeleted>;
  /** Both secrets sign for overlapSeconds (86400). */
  rotateWebhookSecret(of: { webhookId: string; overlapSeconds?: number }, options?: CallOptions): Promise<WebhookWithSecret>;
  /** Queues a delivery that stands for no record; deliveries shows what became of it. */
  testWebhook(of: { webhookId: string }, options?: CallOptions): Promise<Delivery>;
  /** Newest first. */
  deliveriesPage(of: { webhookId: string; status?: Delivery["status"]; limit?: number; after?: string }, options?: CallOptions): Promise<Deliveries>;
  deliveries(of: { webhookId: string; status?: Delivery["status"]; limit?: number }, options?: CallOptions): AsyncGenerator<Deliveries, void, void>;
  redeliver(of: { deliveryId: string }, options?: CallOptions): Promise<Delivery>;
  /** Queues what a destination has missed, or counts it; the same again queues nothing twice. */
  replayWebhook(
    of: { webhookId: string; fromSequence: number; toSequence?: number; companyReference?: string; dryRun: boolean },
    options?: CallOptions,
  ): Promise<Replayed>;

  /** Scope integrity:write. A link to embed before the bytes are final; no evidence of anything. */
  reserve(of: ReservationRequest, options?: CallOptions): Promise<Reservation>;
  /** Scope integrity:read: versions that were reserved and are not registered. A page may be empty although more follow. */
  reservationsPage(of: { companyReference: string; status?: ReservedVersion["status"]; limit?: number; after?: string }, options?: CallOptions): Promise<Reservations>;
  reservations(of: { companyReference: string; status?: ReservedVersion["status"]; limit?: number }, options?: CallOptions): AsyncGenerator<Reservations, void, void>;
  /** Scope integrity:write. Gives the place of a pending reservation back; its link stays, and reserving again renews it. */
  releaseReservation(of: { publicId: string }, options?: CallOptions): Promise<ReleasedReservation>;
  /** Scope integrity:write. The same declaration again is a replay and consumes nothing. */
  register(declaration: Declaration, options?: CallOptions): Promise<Registration>;
  /** 1 to 500 declarations, each decided as if sent alone: look at every result. */
  registerBatch(of: { declarations: Declaration[] }, options?: CallOptions): Promise<BatchResult>;

  /** Scope integrity:read. RECORD_NOT_FOUND where nothing is registered. */
  lookup(of: ReservationRequest | { publicId: string }, options?: CallOptions): Promise<RecordView>;
  record(of: { publicId: string }, options?: CallOptions): Promise<RecordView>;
  /** The records of a hash or of a company, newest first. A page may be empty although more follow. */
  recordsPage(of: RecordsQuery & { after?: string }, options?: CallOptions): Promise<Records>;
  records(of: RecordsQuery, options?: CallOptions): AsyncGenerator<Records, void, void>;
  /** The signed export, with references and a dated observation of the state. */
  evidence(of: { publicId: string; at?: undefined; timestamps?: boolean }, options?: CallOptions): Promise<Evidence & { statusObservation: Signed }>;
  /** The same with the state as of `at` instead: an RFC 3339 time at least a minute ago, or a sequence. */
  evidence(of: { publicId: string; at: string | number; timestamps?: boolean }, options?: CallOptions): Promise<Evidence & { statusAsOf: Signed }>;
  /**
   * Of 1 to 100 records, each publicId once, in one request of the minute: look at every result. INCLUSION_PENDING means
   * that the proof of inclusion may still come; `wait` (0 to 25 seconds) holds the request open until all are there.
   */
  evidenceOfMany(of: { publicIds: string[]; timestamps?: boolean; wait?: number }, options?: CallOptions): Promise<EvidenceResults>;
  /**
   * The transparency log proof (C2SP tlog-proof), with references: save the text as a file .tlog-proof. INCLUSION_PENDING
   * while it may still come; `wait` (0 to 25 seconds) holds the request open.
   */
  tlogProof(of: { publicId: string; wait?: number }, options?: CallOptions): Promise<string>;
  /** The evidence report, a PDF for people with the evidence attached, in English unless `language` says otherwise. */
  report(of: { publicId: string; language?: "es" | "en" }, options?: CallOptions): Promise<Uint8Array>;
  /** Scope integrity:revoke. */
  revoke(of: { publicId: string; reason?: string }, options?: CallOptions): Promise<RevokedRecord>;

  /** One page of the change feed of a company, or of all companies of the key; `wait` (0 to 25 seconds) holds an empty one open. Give back the `epoch` of the page that `after` came from. */
  changesPage(of?: { companyReference?: string; after?: number; epoch?: number; limit?: number; wait?: number }, options?: CallOptions): Promise<ChangesPage>;
  /** Page after page, to the end of the feed, or without an end with `follow`. Store each page, its nextCursor and its epoch together before you take the next. */
  changes(of?: { companyReference?: string; after?: number; epoch?: number; limit?: number; follow?: boolean }, options?: CallOptions): AsyncGenerator<ChangesPage, void, void>;
  usage(options?: CallOptions): Promise<IntegrityUsage>;
  /** One page of what a month ("2026-11"; absent: this one) was charged with. */
  usageEntriesPage(of?: { period?: string; limit?: number; after?: string }, options?: CallOptions): Promise<UsageEntries>;
  /** Page after page, to the end. All have the throughSequence of the first. */
  usageEntries(of?: { period?: string; limit?: number }, options?: CallOptions): AsyncGenerator<UsageEntries, void, void>;

  /** Of any key. Everything else about keys and members has scope organization:admin. */
  organization(options?: CallOptions): Promise<Organization>;
  /** Oldest first, ended ones included. */
  apiKeysPage(of?: { limit?: number; after?: string }, options?: CallOptions): Promise<ApiKeys>;
  apiKeys(of?: { limit?: number }, options?: CallOptions): AsyncGenerator<ApiKeys, void, void>;
  apiKey(of: { keyId: string }, options?: CallOptions): Promise<ApiKey>;
  /** Another key with each call, of this key's member. No key gives more than it has. */
  createApiKey(key: ApiKeyRequest, options?: CallOptions): Promise<CreatedApiKey>;
  /** Another name, or an earlier end. */
  updateApiKey(of: { keyId: string; name?: string; expiresAt?: string }, options?: CallOptions): Promise<ApiKey>;
  /** A successor with the same member, scopes and limits; the former key goes on for overlapSeconds (86400). */
  rotateApiKey(of: { keyId: string; overlapSeconds?: number; copyGrants?: boolean; expiresAt?: string }, options?: CallOptions): Promise<RotatedApiKey>;
  revokeApiKey(of: { keyId: string }, options?: CallOptions): Promise<ApiKey>;
  membersPage(of?: { limit?: number; after?: string }, options?: CallOptions): Promise<Members>;
  members(of?: { limit?: number }, options?: CallOptions): AsyncGenerator<Members, void, void>;
  inviteMember(of: { email: string; role: Role }, options?: CallOptions): Promise<InvitedMember>;
  updateMember(of: { memberId: string; role?: Role; status?: "active" | "disabled" }, options?: CallOptions): Promise<Member>;
  /** Ends a membership for good, or withdraws an invitation. */
  endMember(of: { memberId: string }, options?: CallOptions): Promise<Member>;

  /** Public: no key is sent. Without sha256 nothing is compared. */
  compare(of: { publicId: string; sha256?: string }, options?: CallOptions): Promise<Comparison>;
  compareBytes(of: { publicId: string; bytes: Bytes }, options?: CallOptions): Promise<Comparison>;
  receipt(of: { publicId: string }, options?: CallOptions): Promise<Receipt>;
  /** The transparency log proof without references. */
  publicTlogProof(of: { publicId: string }, options?: CallOptions): Promise<string>;
  /** The evidence report without references and other versions. */
  publicReport(of: { publicId: string; language?: "es" | "en" }, options?: CallOptions): Promise<Uint8Array>;

  /** The newest checkpoint of the transparency log, a signed note. What the log answers proves nothing until it is checked. */
  logCheckpoint(options?: CallOptions): Promise<string>;
  /** Tokens (RFC 3161) over checkpoints of trees with more than `after` leaves. */
  logTimestampsPage(of?: { after?: number }, options?: CallOptions): Promise<LogTimestamps>;
  logTimestamps(of?: { after?: number }, options?: CallOptions): AsyncGenerator<LogTimestamps, void, void>;
  /** A tile of hashes (C2SP tlog-tiles), 32 bytes each; the whole one, cut, where the partial one is no longer kept. */
  logTile(of: { level: number; n: number; width?: number }, options?: CallOptions): Promise<Uint8Array>;
}
