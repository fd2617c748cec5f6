package handlers

import (
	"bytes"
	"fmt"
	"html/template"
	"net/http"
	"strings"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
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
		domain.NotFound: {http.StatusNotFound, "Not found",
			"There is nothing at this path, or nothing that the key may see.",
			"No hay nada en esta ruta, o nada que la clave pueda ver."},
		domain.RecordNotFound: {http.StatusNotFound, "Record not found",
			"No record has this public id, or the key may not see it. That is not a mismatch.",
			"Ningún registro tiene este identificador público, o la clave no puede verlo. No es una discrepancia."},
		domain.MethodNotAllowed: {http.StatusMethodNotAllowed, "Method not allowed",
			"The path exists, but not for this method. The Allow header lists those it answers.",
			"La ruta existe, pero no para este método. La cabecera Allow enumera los que admite."},
		domain.NotAcceptable: {http.StatusNotAcceptable, "Not acceptable",
			"The answer is JSON, which the Accept header excludes.",
			"La respuesta es JSON, que la cabecera Accept excluye."},
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
		domain.LengthRequired: {http.StatusLengthRequired, "Length required",
			"Send the length of the body in Content-Length.",
			"Envíe la longitud del cuerpo en Content-Length."},
		domain.PayloadTooLarge: {http.StatusRequestEntityTooLarge, "Payload too large",
			"The body is larger than this path takes.",
			"El cuerpo es mayor de lo que admite esta ruta."},
		domain.InvalidData: {http.StatusUnprocessableEntity, "Invalid data",
			"The member errors lists everything to correct.",
			"El miembro errors enumera todo lo que hay que corregir."},
		domain.CursorAhead: {http.StatusUnprocessableEntity, "Cursor ahead",
			"The cursor lies beyond the last event: the database was restored to an earlier state. Read the feed again from a cursor you trust.",
			"El cursor está más allá del último evento: la base de datos se restauró a un estado anterior. Lea de nuevo desde un cursor en el que confíe."},
		domain.RateLimited: {http.StatusTooManyRequests, "Rate limited",
			"Too many requests in this minute. Wait as long as Retry-After says.",
			"Demasiadas peticiones en este minuto. Espere lo que indica Retry-After."},
		domain.RegistrationQuotaExhausted: {http.StatusTooManyRequests, "Registration quota exhausted",
			"The month's new versions are used up. Replays, reads and comparisons still work.",
			"Las versiones nuevas del mes se han agotado. Las repeticiones, lecturas y comparaciones siguen funcionando."},
		domain.RequestQuotaExhausted: {http.StatusTooManyRequests, "Request quota exhausted",
			"The month's requests are used up. GET /api/v1/usage and the integrity API still work.",
			"Las peticiones del mes se han agotado. GET /api/v1/usage y la API de integridad siguen funcionando."},
		domain.PendingReservationLimit: {http.StatusTooManyRequests, "Pending reservation limit",
			"The organization has as many pending reservations as there can be. Register some of them, or wait until one expires.",
			"La organización ya tiene el máximo de reservas pendientes. Registre alguna, o espere a que caduque una."},
		domain.UnfinalizedIdentityLimit: {http.StatusTooManyRequests, "Unfinalized identity limit",
			"The organization has too many reserved identities that were never registered. Register them, or ask the operator for a higher limit.",
			"La organización tiene demasiadas identidades reservadas que nunca se registraron. Regístrelas, o pida al operador un límite mayor."},
		domain.CompanyLimit: {http.StatusTooManyRequests, "Company limit",
			"The organization has as many companies as there can be.",
			"La organización ya tiene el máximo de empresas."},
		domain.Internal: {http.StatusInternalServerError, "Internal error",
			"The service failed on this request. The failure was logged under the request id.",
			"El servicio falló en esta petición. El fallo quedó registrado con el identificador de la petición."},
		domain.TemporarilyUnavailable: {http.StatusServiceUnavailable, "Temporarily unavailable",
			"The service cannot answer at the moment. That is not a mismatch: send the very same request again later.",
			"El servicio no puede responder ahora. No es una discrepancia: envíe más tarde exactamente la misma petición."},
	}
}

const htmlType = "text/html; charset=utf-8"

// page is a plain text in both languages, without anything to load.
type page struct {
	Title string
	Texts []pageText
}

type pageText struct {
	Language evidence.Language
	Title    string
	Points   []string
}

func (p page) render() (response, error) {
	const text = `<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{{.Title}}</title></head>
<body>
<h1>{{.Title}}</h1>
{{range .Texts}}<section lang="{{.Language}}">
{{with .Title}}<h2>{{.}}</h2>
{{end}}{{range .Points}}<p>{{.}}</p>
{{end}}</section>
{{end}}</body>
</html>
`
	parsed, err := template.New("page").Parse(text)
	if err != nil {
		return response{}, fmt.Errorf("page: %w", err)
	}
	var b bytes.Buffer
	if err := parsed.Execute(&b, p); err != nil {
		return response{}, fmt.Errorf("page: %w", err)
	}
	return response{raw: b.Bytes(), contentType: htmlType, cache: publicMinutes}, nil
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
	retryEnglish, retrySpanish := "Try again: no.", "Reintentar: no."
	if text.retryable(code) {
		retryEnglish, retrySpanish = "Try again: yes (retryable).", "Reintentar: sí (retryable)."
	}
	return page{Title: fmt.Sprintf("%s (%s, HTTP %d)", text.title, code, text.status), Texts: []pageText{
		{Language: evidence.English, Title: "English", Points: []string{"Cause: " + text.english, "What to do: " + remedy.english, retryEnglish}},
		{Language: evidence.Spanish, Title: "Español", Points: []string{"Causa: " + text.spanish, "Qué hacer: " + remedy.spanish, retrySpanish}},
	}}.render()
}

// limitsPage shows the fixed text on what is and is not proven (contract section 10).
func (s *server) limitsPage(*http.Request) (response, error) {
	p := page{Title: evidence.LimitsTitle(evidence.English)}
	for _, language := range []evidence.Language{evidence.English, evidence.Spanish} {
		p.Texts = append(p.Texts, pageText{
			Language: language, Title: evidence.LimitsTitle(language), Points: evidence.Limits(language, s.Relationship[language]),
		})
	}
	return p.render()
}
