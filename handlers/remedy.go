package handlers

import (
	"net/http"

	"integrityledger/domain"
)

// remedy is what a caller does about a code; codeText says what it means.
type remedy struct{ english, spanish string }

// remedies has one for every code (contract section 2, specification "Errors").
func remedies() map[domain.Code]remedy {
	correct := remedy{"Correct the request. Sending it again unchanged, or under another identity, does not help.",
		"Corrija la petición. Enviarla otra vez sin cambios, o con otra identidad, no sirve."}
	wait := remedy{"Wait as many seconds as Retry-After says, then send the same request again.",
		"Espere los segundos que indica Retry-After y envíe de nuevo la misma petición."}
	return map[domain.Code]remedy{
		domain.MalformedJSON: correct,
		domain.InvalidKey: {"Send Authorization: Bearer with a key that works. A key that was revoked or has expired never works again: the operator of the service creates another (integrity key create, or integrity key rotate before it ends).",
			"Envíe Authorization: Bearer con una clave que funcione. Una clave revocada o caducada no vuelve a funcionar: el operador del servicio crea otra (integrity key create, o integrity key rotate antes de que termine)."},
		domain.MissingScope: {"Use a key that has the scope: the scopes of a key never change, and the operator of the service creates another (integrity key create --scopes). Repeating the request does not help.",
			"Use una clave que tenga el permiso: los permisos de una clave no cambian, y el operador del servicio crea otra (integrity key create --scopes). Repetir la petición no sirve."},
		domain.RoleRequired: {"Use a key of a member with that role, or have the operator of the service change the member's role (integrity member role). Repeating the request does not help.",
			"Use una clave de un miembro con ese rol, o pida al operador del servicio que cambie el rol del miembro (integrity member role). Repetir la petición no sirve."},
		domain.PlanRequired: {"Ask the operator of the service for another plan (integrity organization plan). Nothing is bought or changed by itself.",
			"Pida otro plan al operador del servicio (integrity organization plan). Nada se compra ni se cambia por sí solo."},
		domain.CompanyNotAuthorized: {"Compare the reference letter by letter. An owner or admin of the organization, with a key that has integrity:admin, creates the company and grants it to the key (POST /api/v1/integrity/companies, then …/companies/{companyId}/access); so can the operator of the service (integrity company create, integrity key grant).",
			"Compare la referencia letra a letra. Un propietario o administrador de la organización, con una clave que tenga integrity:admin, crea la empresa y la concede a la clave (POST /api/v1/integrity/companies, después …/companies/{companyId}/access); también puede hacerlo el operador del servicio (integrity company create, integrity key grant)."},
		domain.IdentityNotLinked: {"The member makes a link with a key of its own (POST /api/v1/oauth/links), or the operator of the service does (integrity member link); open it within ten minutes and sign in. Another token for the same identity does not help.",
			"El miembro crea un enlace con una clave suya (POST /api/v1/oauth/links), o lo crea el operador del servicio (integrity member link); ábralo antes de diez minutos e inicie sesión. Otro token de la misma identidad no sirve."},
		domain.NotFound: {"Compare the path with the published contract.", "Compare la ruta con el contrato publicado."},
		domain.RecordNotFound: {"Compare the public id letter by letter. If a registration's outcome is not known, send the very same declaration again.",
			"Compare el identificador público letra a letra. Si no se conoce el resultado de un registro, envíe de nuevo exactamente la misma declaración."},
		domain.CertificateNotFound: {"Compare the public id letter by letter.", "Compare el identificador público letra a letra."},
		domain.MethodNotAllowed:    correct,
		domain.NotAcceptable:       correct,
		domain.RequestTimeout: {"Send the very same request again, over a connection that is not interrupted.",
			"Envíe de nuevo exactamente la misma petición, por una conexión que no se interrumpa."},
		domain.UnsupportedMediaType: correct,
		domain.VersionConflict: {"Look the version up and compare. If the document did change, register it with a higher version; never use this number again.",
			"Consulte la versión y compárela. Si el documento cambió, regístrelo con una versión superior; no reutilice este número."},
		"RESERVATION_MISMATCH": {"Name the reservation of this very version, or none: its own is found without being named.",
			"Indique la reserva de esta misma versión, o ninguna: la propia se encuentra sin indicarla."},
		domain.InvalidState: {"Read the present state and decide anew.", "Lea el estado actual y decida de nuevo."},
		domain.RequestInProgress: {"The first request is still running: wait a moment, then send the same one again with the same key.",
			"La primera petición sigue en curso: espere un momento y envíe la misma con la misma clave."},
		domain.LengthRequired:  correct,
		domain.PayloadTooLarge: correct,
		domain.InvalidData:     correct,
		domain.FileDoesNotMatchVersion: {"Supply the very file that was registered, or register the changed one as a new version and review that.",
			"Aporte exactamente el archivo registrado, o registre el modificado como versión nueva y revise esa."},
		domain.IdempotencyKeyReused: {"Use a new Idempotency-Key for a new request; repeat an earlier request only with the very same content.",
			"Use un Idempotency-Key nuevo para una petición nueva; repita una anterior solo con exactamente el mismo contenido."},
		domain.ArtifactQuotaExhausted: {"Wait until the next UTC month has begun (Retry-After), or ask the operator of the service for a file credit pack (integrity organization credits add) or another plan (integrity organization plan).",
			"Espere a que empiece el mes UTC siguiente (Retry-After), o pida al operador del servicio un paquete de créditos de archivo (integrity organization credits add) u otro plan (integrity organization plan)."},
		domain.CursorAhead:                {"Tell whoever runs the consumer; then read the feed again from a cursor you trust, and deduplicate by id.", "Avise a quien opera el consumidor; después lea de nuevo desde un cursor de confianza y descarte duplicados por id."},
		domain.WebhookURLBlocked:          {"Give an https address that is reachable from the public Internet; the operator of the service may refuse more networks (INTEGRITY_WEBHOOK_DENY).", "Indique una dirección https accesible desde Internet; el operador del servicio puede rechazar otras redes (INTEGRITY_WEBHOOK_DENY)."},
		domain.RateLimited:                wait,
		domain.RegistrationQuotaExhausted: {"Keep the declaration and send it again after the next UTC month has begun (Retry-After), or ask the operator of the service for another plan (integrity organization plan).", "Conserve la declaración y envíela de nuevo cuando empiece el mes UTC siguiente (Retry-After), o pida otro plan al operador del servicio (integrity organization plan)."},
		domain.RequestQuotaExhausted:      {"Wait until the next UTC month has begun (Retry-After), or ask the operator of the service for another plan (integrity organization plan).", "Espere a que empiece el mes UTC siguiente (Retry-After), o pida otro plan al operador del servicio (integrity organization plan)."},
		"PENDING_RESERVATION_LIMIT":       {"Register what was reserved, or wait until the earliest reservation expires (Retry-After). A document needs no reservation.", "Registre lo reservado o espere a que caduque la reserva más antigua (Retry-After). Un documento no necesita reserva."},
		"UNFINALIZED_IDENTITY_LIMIT":      {"Register what was reserved: expiry does not free these places. The operator of the service can raise the limit (integrity organization limits --unfinalized).", "Registre lo reservado: la caducidad no libera estos lugares. El operador del servicio puede elevar el límite (integrity organization limits --unfinalized)."},
		domain.CompanyLimit:               {"Use the companies there are: they are never deleted, and nobody can raise this limit. Another organization has its own; the operator of the service creates it (integrity organization create).", "Use las empresas existentes: nunca se eliminan y nadie puede elevar este límite. Otra organización tiene el suyo; la crea el operador del servicio (integrity organization create)."},
		domain.WebhookLimit:               {"An owner or admin, with a key that has integrity:admin, deletes a destination (DELETE /api/v1/integrity/webhooks/{webhookId}) or takes back an authorization (\"enabled\": false). Time alone changes nothing.", "Un propietario o administrador, con una clave que tenga integrity:admin, elimina un destino (DELETE /api/v1/integrity/webhooks/{webhookId}) o retira una autorización (\"enabled\": false). El tiempo por sí solo no cambia nada."},
		domain.Internal:                   {"Tell the operator of the service the request id. Look up what became of a registration before anything else.", "Comunique al operador del servicio el identificador de la petición. Antes que nada, consulte qué fue de un registro."},
		domain.TemporarilyUnavailable:     wait,
	}
}

// retryable is what the member of the same name says of a code: whether time alone helps.
func (t codeText) retryable(code domain.Code) bool {
	switch code {
	case domain.CompanyLimit, domain.WebhookLimit, domain.UnfinalizedIdentityLimit:
		return false // somebody has to free places, or to raise the limit
	case domain.RequestInProgress:
		return true
	}
	return t.waits()
}

// waits is true of a status whose answer has Retry-After (specification, Errors): every
// 429 has it, a day where nothing resets.
func (t codeText) waits() bool {
	return t.status == http.StatusTooManyRequests || t.status == http.StatusServiceUnavailable || t.status == http.StatusRequestTimeout
}
