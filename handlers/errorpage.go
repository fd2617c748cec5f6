package handlers

import (
	"net/http"
	"strings"

	"integrityledger/domain"
	"integrityledger/handlers/web"
)

// codeText is how a code is answered and explained.
type codeText struct {
	status           int
	title            string
	english, spanish string
}

// codeTexts is the one table of codes (contract section 2).
func codeTexts() map[domain.Code]codeText {
	return map[domain.Code]codeText{
		domain.MalformedJSON: {http.StatusBadRequest, "Malformed JSON",
			"The body is not exactly one JSON value in UTF-8. Mend it before sending it again.",
			"El cuerpo no es exactamente un valor JSON en UTF-8. Corríjalo antes de enviarlo de nuevo."},
		domain.InvalidKey: {http.StatusUnauthorized, "Invalid key",
			"The API key is missing, malformed, unknown, expired or revoked, or its member may no longer use it.",
			"La clave de API falta, está mal formada, es desconocida, ha caducado o se ha revocado, o su miembro ya no puede usarla."},
		domain.MissingScope: {http.StatusForbidden, "Missing scope",
			"The key lacks the scope that this request needs. Use a key that has it.",
			"La clave no tiene el permiso que necesita esta petición. Use una clave que lo tenga."},
		domain.RoleRequired: {http.StatusForbidden, "Role required",
			"A scope never raises a role: the key's member needs a higher role in the organization.",
			"Un permiso nunca eleva un rol: el miembro de la clave necesita un rol superior en la organización."},
		domain.PlanRequired: {http.StatusForbidden, "Plan required",
			"The organization's plan does not include this.",
			"El plan de la organización no lo incluye."},
		domain.CompanyNotAuthorized: {http.StatusForbidden, "Company not authorized",
			"The key has no grant for that company, or there is no such company.",
			"La clave no tiene acceso a esa empresa, o no existe."},
		domain.IdentityNotLinked: {http.StatusForbidden, "Identity not linked",
			"The access token is valid, but its identity is linked to no active member, or the consent was withdrawn.",
			"El token de acceso es válido, pero su identidad no está vinculada a ningún miembro activo, o se retiró el consentimiento."},
		domain.NotFound: {http.StatusNotFound, "Not found",
			"There is nothing at this path, or nothing that the key may see.",
			"No hay nada en esta ruta, o nada que la clave pueda ver."},
		domain.RecordNotFound: {http.StatusNotFound, "Record not found",
			"No record has this public id, or the key may not see it. That is not a mismatch.",
			"Ningún registro tiene este identificador público, o la clave no puede verlo. No es una discrepancia."},
		domain.CertificateNotFound: {http.StatusNotFound, "Certificate not found",
			"No certificate has this public id, or the key may not see it. That is not a mismatch.",
			"Ningún certificado tiene este identificador público, o la clave no puede verlo. No es una discrepancia."},
		domain.MethodNotAllowed: {http.StatusMethodNotAllowed, "Method not allowed",
			"The path exists, but not for this method. The Allow header lists those it answers.",
			"La ruta existe, pero no para este método. La cabecera Allow enumera los que admite."},
		domain.NotAcceptable: {http.StatusNotAcceptable, "Not acceptable",
			"The answer is JSON, which the Accept header excludes.",
			"La respuesta es JSON, que la cabecera Accept excluye."},
		domain.RequestTimeout: {http.StatusRequestTimeout, "Request timeout",
			"The body did not arrive in time. Nothing was done. A body has ten seconds, and then must arrive at 64 KiB a second or faster.",
			"El cuerpo no llegó a tiempo. No se hizo nada. Un cuerpo dispone de diez segundos y después debe llegar a 64 KiB por segundo o más."},
		domain.UnsupportedMediaType: {http.StatusUnsupportedMediaType, "Unsupported media type",
			"Send the body as application/json in UTF-8, without Content-Encoding.",
			"Envíe el cuerpo como application/json en UTF-8, sin Content-Encoding."},
		domain.VersionConflict: {http.StatusConflict, "Version conflict",
			"This version was already declared with other data. A changed document needs a higher version number.",
			"Esta versión ya se declaró con otros datos. Un documento modificado necesita un número de versión superior."},
		domain.ReservationMismatch: {http.StatusConflict, "Reservation mismatch",
			"The reservationId belongs to another version of this company. Send the one of this version, or none.",
			"El reservationId pertenece a otra versión de esta empresa. Envíe el de esta versión, o ninguno."},
		domain.InvalidState: {http.StatusConflict, "Invalid state",
			"What the request names is not in a state that allows it.",
			"Aquello a lo que se refiere la petición no está en un estado que la permita."},
		domain.RequestInProgress: {http.StatusConflict, "Request in progress",
			"A request with this Idempotency-Key is still running.",
			"Una petición con este Idempotency-Key sigue en curso."},
		domain.LengthRequired: {http.StatusLengthRequired, "Length required",
			"Send the length of the body in Content-Length.",
			"Envíe la longitud del cuerpo en Content-Length."},
		domain.PayloadTooLarge: {http.StatusRequestEntityTooLarge, "Payload too large",
			"The body is larger than this path takes.",
			"El cuerpo es mayor de lo que admite esta ruta."},
		domain.InvalidData: {http.StatusUnprocessableEntity, "Invalid data",
			"The member errors lists everything to correct.",
			"El miembro errors enumera todo lo que hay que corregir."},
		domain.FileDoesNotMatchVersion: {http.StatusUnprocessableEntity, "File does not match version",
			"The file supplied with the review is not the one that was registered as this version: its SHA-256 differs.",
			"El archivo aportado con la revisión no es el que se registró como esta versión: su SHA-256 es distinto."},
		domain.IdempotencyKeyReused: {http.StatusUnprocessableEntity, "Idempotency key reused",
			"This Idempotency-Key was used with other content in the last 24 hours.",
			"Este Idempotency-Key ya se utilizó con otro contenido en las últimas 24 horas."},
		domain.CursorAhead: {http.StatusUnprocessableEntity, "Cursor ahead",
			"The cursor lies beyond the last event: the database was restored to an earlier state. Read the feed again from a cursor you trust.",
			"El cursor está más allá del último evento: la base de datos se restauró a un estado anterior. Lea de nuevo desde un cursor en el que confíe."},
		domain.WebhookURLBlocked: {http.StatusUnprocessableEntity, "Webhook URL blocked",
			"The address of the webhook destination is not globally reachable, or the operator does not allow it.",
			"La dirección del destino de webhook no es accesible desde Internet, o el operador no la permite."},
		domain.RateLimited: {http.StatusTooManyRequests, "Rate limited",
			"Too many requests in this minute. Wait as long as Retry-After says.",
			"Demasiadas peticiones en este minuto. Espere lo que indica Retry-After."},
		domain.RegistrationQuotaExhausted: {http.StatusTooManyRequests, "Registration quota exhausted",
			"The month's new versions are used up. Replays, reads and comparisons still work.",
			"Las versiones nuevas del mes se han agotado. Las repeticiones, lecturas y comparaciones siguen funcionando."},
		domain.RequestQuotaExhausted: {http.StatusTooManyRequests, "Request quota exhausted",
			"The month's requests are used up. GET /api/v1/usage and the integrity API still work.",
			"Las peticiones del mes se han agotado. GET /api/v1/usage y la API de integridad siguen funcionando."},
		domain.ArtifactQuotaExhausted: {http.StatusTooManyRequests, "Artifact quota exhausted",
			"The month's registrations of artifacts are used up, and there are no file credits. Hash-only registrations have a quota of their own.",
			"Los registros de documentos del mes se han agotado y no quedan créditos de archivo. Los registros solo de hash tienen su propia cuota."},
		domain.PendingReservationLimit: {http.StatusTooManyRequests, "Pending reservation limit",
			"The organization has as many pending reservations as there can be. Register some of them, or wait until one expires.",
			"La organización ya tiene el máximo de reservas pendientes. Registre alguna, o espere a que caduque una."},
		domain.UnfinalizedIdentityLimit: {http.StatusTooManyRequests, "Unfinalized identity limit",
			"The organization has too many reserved identities that were never registered. Register them, or ask the operator for a higher limit.",
			"La organización tiene demasiadas identidades reservadas que nunca se registraron. Regístrelas, o pida al operador un límite mayor."},
		domain.CompanyLimit: {http.StatusTooManyRequests, "Company limit",
			"The organization has as many companies as there can be.",
			"La organización ya tiene el máximo de empresas."},
		domain.WebhookLimit: {http.StatusTooManyRequests, "Webhook limit",
			"The organization has as many webhook destinations, or the company as many authorized ones, as there can be.",
			"La organización ya tiene el máximo de destinos de webhook, o la empresa el máximo de destinos autorizados."},
		domain.Internal: {http.StatusInternalServerError, "Internal error",
			"The service failed on this request. The failure was logged under the request id.",
			"El servicio falló en esta petición. El fallo quedó registrado con el identificador de la petición."},
		domain.TemporarilyUnavailable: {http.StatusServiceUnavailable, "Temporarily unavailable",
			"The service cannot answer at the moment. That is not a mismatch: send the very same request again later.",
			"El servicio no puede responder ahora. No es una discrepancia: envíe más tarde exactamente la misma petición."},
	}
}

const htmlType = "text/html; charset=utf-8"

// page answers HTML that the site has rendered.
func page(body []byte, err error) (response, error) {
	return response{raw: body, contentType: htmlType, header: web.PageHeader()}, err
}

// errorPage explains a code: it is where the type of an error leads.
func (s *server) errorPage(r *http.Request) (response, error) {
	name := variable(r, "code")
	code := domain.Code(strings.ReplaceAll(strings.ToUpper(name), "-", "_"))
	text, ok := s.codes[code]
	if !ok || kebab(code) != name {
		return response{}, domain.Refuse(domain.NotFound, "There is no error with that name.")
	}
	remedy := remedies()[code]
	retryEnglish, retrySpanish := "no.", "no."
	if text.retryable(code) {
		retryEnglish, retrySpanish = "yes (retryable).", "sí (retryable)."
	}
	resp, err := page(s.site.Code(string(code), text.title, text.status,
		[]web.Point{{Name: "Cause", Text: text.english}, {Name: "What to do", Text: remedy.english}, {Name: "Try again", Text: retryEnglish}},
		[]web.Point{{Name: "Causa", Text: text.spanish}, {Name: "Qué hacer", Text: remedy.spanish}, {Name: "Reintentar", Text: retrySpanish}},
	))
	resp.cache = publicMinutes
	return resp, err
}

// limitsPage shows the fixed text on what is and is not proven (contract section 10).
func (s *server) limitsPage(*http.Request) (response, error) {
	resp, err := page(s.site.Limits())
	resp.cache = publicMinutes
	return resp, err
}
