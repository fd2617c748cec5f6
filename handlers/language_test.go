package handlers_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"integrityledger/domain"
	"integrityledger/handlers/wire"
)

// The texts of an answer follow Accept-Language; its codes and pointers do not.
func TestErrorsInTheLanguageOfTheCaller(t *testing.T) {
	s := open(t, options{})
	s.registered("a", 1, "x")
	failed := func(a answer, status int, code domain.Code) wire.Failure {
		t.Helper()
		a.refuses(status, code)
		var envelope struct{ Error wire.Failure }
		check(t, json.Unmarshal(a.body, &envelope))
		if a.header.Get("Vary") != "Accept-Language" && a.header.Get("Idempotent-Replayed") == "" {
			t.Errorf("Vary %q", a.header.Get("Vary"))
		}
		return envelope.Error
	}
	post := func(language string, sent any) answer {
		return s.send(http.MethodPost, integrity+"/records", s.org.Secret, sent, "Accept-Language", language)
	}
	wrong := declaration("b", 1, "x")
	wrong["sha256"], wrong["sizeBytes"], wrong["sice"] = "abc", -1, 1
	const title, detail = "Datos no válidos", "Corrija los campos indicados en errors y vuelva a enviar la petición."
	for language, spanish := range map[string]bool{
		"es": true, "es-ES,es;q=0.9,en;q=0.8": true, "ca, es;q=0.5": true, "en": false, "": false, "*": false, "de": false,
		"en-GB, es;q=0.9": false, strings.Repeat("es, ", 200): false,
	} {
		refused := failed(post(language, wrong), http.StatusUnprocessableEntity, domain.InvalidData)
		if got := refused.Title == title && refused.Detail == detail; got != spanish {
			t.Errorf("%s: %s: %s", language, refused.Title, refused.Detail)
		}
		said := map[string]string{}
		for _, e := range refused.Errors {
			said[e.Pointer+" "+e.Code] = e.Message
		}
		want := map[string]string{
			"/sha256 FORMAT":       domain.SHA256Rule,
			"/sizeBytes RANGE":     "must be an integer from 0 to 9007199254740991",
			"/sice UNKNOWN_MEMBER": "there is no such member",
		}
		if spanish {
			want = map[string]string{
				"/sha256 FORMAT":       "debe ser la huella SHA-256, con 64 caracteres hexadecimales",
				"/sizeBytes RANGE":     "debe ser un entero de 0 a 9007199254740991",
				"/sice UNKNOWN_MEMBER": "no existe ese campo",
			}
		}
		equal(t, language, said, want)
	}

	// A list of names, a sentence within a sentence, and the translated "or".
	unauthorized := s.send(http.MethodGet, "/api/v1/integrity/records", "ik_x", nil, "Accept-Language", "es")
	if refused := failed(unauthorized, http.StatusUnauthorized, domain.InvalidKey); refused.Detail !=
		"Envíe una clave de API válida: Authorization: Bearer <CLAVE_DE_API>." {
		t.Error(refused.Detail)
	}
	elsewhere := s.send(http.MethodGet, "/api/v1/nothing", "", nil, "Accept-Language", "es")
	if refused := failed(elsewhere, http.StatusNotFound, domain.NotFound); refused.Detail != "En esta ruta no hay nada." {
		t.Error(refused.Detail)
	}

	// Items of a batch, and a stored answer, which keeps the language of the first request.
	batch := s.send(http.MethodPost, integrity+"/records/batch", s.org.Secret,
		map[string]any{"declarations": []any{map[string]any{}}}, "Accept-Language", "es")
	if !strings.Contains(string(batch.body), "el campo es obligatorio") || strings.Contains(string(batch.body), "is required") {
		t.Errorf("%s", batch.body)
	}
	conflict := func(language string) string {
		changed := map[string]any{"reason": "x"}
		a := s.send(
			http.MethodPost, "/api/v1/certificates/"+strings.Repeat("a", 26)+"/revoke", s.org.Secret, changed, "Accept-Language",
			language, "Idempotency-Key", "k",
		)
		return failed(a, http.StatusNotFound, domain.CertificateNotFound).Detail
	}
	if first, again := conflict("es"), conflict("en"); first != again || !strings.HasPrefix(first, "No hay ningún certificado") {
		t.Errorf("%q, then %q", first, again)
	}
}
