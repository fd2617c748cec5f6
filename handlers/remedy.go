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
	operator := remedy{"Ask an owner or admin of the organization. Repeating the request does not help.",
		"Pídalo a un propietario o administrador de la organización. Repetir la petición no sirve."}
	wait := remedy{"Wait as many seconds as Retry-After says, then send the same request again.",
		"Espere los segundos que indica Retry-After y envíe de nuevo la misma petición."}
	return map[domain.Code]remedy{
		domain.MalformedJSON: correct,
		domain.InvalidKey: {"Send Authorization: Bearer with a key that works. A key that was revoked or has expired never works again: ask for another.",
			"Envíe Authorization: Bearer con una clave que funcione. Una clave revocada o caducada no vuelve a funcionar: pida otra."},
		domain.MissingScope: operator,
		domain.RoleRequired: operator,
		domain.PlanRequired: {"Ask the operator for another plan. Nothing is bought or changed by itself.",
			"Pida otro plan al operador. Nada se compra ni se cambia por sí solo."},
		domain.CompanyNotAuthorized: {"Ask an owner or admin to grant the company to the key, and compare the reference letter by letter.",
			"Pida a un propietario o administrador que conceda la empresa a la clave y compare la referencia letra a letra."},
		domain.IdentityNotLinked: {"Ask a member of the organization for a link, open it within ten minutes and sign in. Another token for the same identity does not help.",
			"Pida un enlace a un miembro de la organización, ábralo antes de diez minutos e inicie sesión. Otro token de la misma identidad no sirve."},
		domain.NotFound: {"Compare the path with the published contract.", "Compare la ruta con el contrato publicado."},
		domain.RecordNotFound: {"Compare the public id letter by letter. If a registration's outcome is not known, send the very same declaration again.",
			"Compare el identificador público letra a letra. Si no se conoce el resultado de un registro, envíe de nuevo exactamente la misma declaración."},
		domain.CertificateNotFound:  {"Compare the public id letter by letter.", "Compare el identificador público letra a letra."},
		domain.MethodNotAllowed:     correct,
		domain.NotAcceptable:        correct,
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
		domain.ArtifactQuotaExhausted: {"Wait until the next UTC month has begun (Retry-After), or ask the operator for a file credit pack or another plan.",
			"Espere a que empiece el mes UTC siguiente (Retry-After), o pida al operador un paquete de créditos de archivo u otro plan."},
		domain.CursorAhead:                {"Tell whoever runs the consumer; then read the feed again from a cursor you trust, and deduplicate by id.", "Avise a quien opera el consumidor; después lea de nuevo desde un cursor de confianza y descarte duplicados por id."},
		domain.WebhookURLBlocked:          {"Give an https address that is reachable from the public Internet.", "Indique una dirección https accesible desde Internet."},
		domain.RateLimited:                wait,
		domain.RegistrationQuotaExhausted: {"Keep the declaration and send it again after the next UTC month has begun (Retry-After), or ask for another plan.", "Conserve la declaración y envíela de nuevo cuando empiece el mes UTC siguiente (Retry-After), o pida otro plan."},
		domain.RequestQuotaExhausted:      {"Wait until the next UTC month has begun (Retry-After), or ask for another plan.", "Espere a que empiece el mes UTC siguiente (Retry-After), o pida otro plan."},
		"PENDING_RESERVATION_LIMIT":       {"Register what was reserved, or wait until the earliest reservation expires (Retry-After). A document needs no reservation.", "Registre lo reservado o espere a que caduque la reserva más antigua (Retry-After). Un documento no necesita reserva."},
		"UNFINALIZED_IDENTITY_LIMIT":      {"Register what was reserved: expiry does not free these places. The operator can raise the limit.", "Registre lo reservado: la caducidad no libera estos lugares. El operador puede elevar el límite."},
		domain.CompanyLimit:               {"Use the companies there are, or speak to the operator. Time alone changes nothing.", "Use las empresas existentes o hable con el operador. El tiempo por sí solo no cambia nada."},
		domain.WebhookLimit:               {"Delete a destination, or take back an authorization. Time alone changes nothing.", "Elimine un destino o retire una autorización. El tiempo por sí solo no cambia nada."},
		domain.Internal:                   {"Tell the operator the request id. Look up what became of a registration before anything else.", "Comunique al operador el identificador de la petición. Antes que nada, consulte qué fue de un registro."},
		domain.TemporarilyUnavailable:     wait,
	}
}

// retryable is what the member of the same name says of a code.
func (t codeText) retryable(code domain.Code) bool {
	return t.waits() || code == domain.RequestInProgress
}

// waits is true of a status that says when to come again.
func (t codeText) waits() bool {
	return t.status == http.StatusTooManyRequests || t.status == http.StatusServiceUnavailable
}
