package evidence

import "strings"

// Language of the fixed texts.
type Language string

// The languages the service speaks.
const (
	Spanish Language = "es"
	English Language = "en"
)

// LimitsTitle heads the fixed text.
func LimitsTitle(language Language) string {
	if language == Spanish {
		return "Qué acredita este servicio y qué no"
	}
	return "What this service attests, and what it does not"
}

// Limits is the fixed text on what is and is not proven (contract, section 10), one sentence or two a point, the same
// wherever it is shown. relationship is the operator's own words on its relationship with an origin system
// (INTEGRITY_RELATIONSHIP_ES, _EN); the general disclosure stands whether or not there are any. Any language but
// Spanish is English.
func Limits(language Language, relationship string) []string {
	if language == Spanish {
		return disclosed(limitsSpanish(), sharedOperatorSpanish, relationship)
	}
	return disclosed(limitsEnglish(), sharedOperatorEnglish, relationship)
}

// CertificateLimitsTitle heads CertificateLimits.
func CertificateLimitsTitle(language Language) string {
	if language == Spanish {
		return "Qué acredita un certificado y qué no"
	}
	return "What a certificate attests, and what it does not"
}

// CertificateLimits is the text for a certificate of certification, in which
// the service did receive the file. It is otherwise as Limits.
func CertificateLimits(language Language, relationship string) []string {
	if language == Spanish {
		return disclosed(certificateLimitsSpanish(), sharedOperatorSpanish, relationship)
	}
	return disclosed(certificateLimitsEnglish(), sharedOperatorEnglish, relationship)
}

func disclosed(points []string, shared, relationship string) []string {
	if relationship = strings.TrimSpace(relationship); relationship != "" {
		shared += " " + relationship
	}
	return append(points, shared)
}

const (
	sharedOperatorEnglish = "This service shares its developer and operator with an origin system that uses it. It is an external verification service, not an independent audit."
	sharedOperatorSpanish = "Este servicio comparte desarrollador y operador con un sistema de origen que lo utiliza. Es un servicio externo de verificación, no una auditoría independiente."
)

func limitsEnglish() []string {
	return []string{
		"An authenticated organization declared this hash (SHA-256), and the service received the declaration at receivedAt by its own clock. That is not an independent trusted timestamp.",
		"The size, the media type and generatedAt are declarations of the origin system. The service has not seen the document.",
		"A registration is neither a review nor an approval of the document.",
		"It does not prove existence, possession, authorship, truth or legal compliance.",
		"A mismatch may be another legitimate version, or a change of metadata only. It does not say who changed the file or what the change means.",
		"A proof of inclusion shows that the transparency log, as the service signed it, holds the record; whoever keeps it can tell when that log is rewritten later. It is not an independent trusted timestamp, and neither is the cosignature of a witness.",
		"Companies are internal integration partitions, not verified legal entities.",
		"No availability is guaranteed (no SLA).",
		"Records, references and states are kept while the service operates, not for ever.",
		"A link for checking is not an authorization to download a document.",
		"The receipt shows the hash, the size, the media type and the times to whoever has the link.",
	}
}

func limitsSpanish() []string {
	return []string{
		"Una organización autenticada declaró este hash (SHA-256) y el servicio recibió la declaración en receivedAt según su propio reloj. No es un sello de tiempo independiente.",
		"El tamaño, el tipo de archivo y generatedAt son declaraciones del sistema de origen. El servicio no ha visto el documento.",
		"Un registro no es una revisión ni una aprobación del documento.",
		"No acredita existencia, posesión, autoría, veracidad ni cumplimiento legal.",
		"Una discrepancia puede deberse a otra versión legítima o a un cambio solo de metadatos. No indica quién modificó el archivo ni qué significa el cambio.",
		"Una prueba de inclusión muestra que el registro de transparencia, tal como lo firmó el servicio, contiene el registro; quien la conserve puede detectar si aquel se reescribe después. No es un sello de tiempo independiente, y tampoco lo es la cofirma de un testigo.",
		"Las empresas son particiones internas de integración, no entidades jurídicas verificadas.",
		"No se garantiza disponibilidad (no hay SLA).",
		"Los registros, las referencias y los estados se conservan mientras el servicio esté en funcionamiento, no a perpetuidad.",
		"Un enlace de comprobación no autoriza a descargar un documento.",
		"El justificante muestra el hash, el tamaño, el tipo de archivo y las fechas a quien tenga el enlace.",
	}
}

func certificateLimitsEnglish() []string {
	return []string{
		"An authenticated organization sent the file to this service, and members of that organization declared that they had reviewed and approved it. The service signed its hash (SHA-256) and its size.",
		"The review and the approval are declarations of the organization. The service has not examined the content, and the automatic analysis of the file is no approval.",
		"issuedAt is the time of this service's own clock. It is not an independent trusted timestamp.",
		"A title or a name of an organization in the certificate is the organization's own words, published with its authorization. The service has not verified them.",
		"It does not prove authorship, truth, legal compliance or the identity of any person.",
		"A mismatch may be another legitimate version, or a change of metadata only. It does not say who changed the file or what the change means.",
		"A certificate can be replaced by that of a later version, or revoked. Only an online check shows whether it is still valid; reasons are not published.",
		"No availability is guaranteed (no SLA).",
		"Certificates and their states are kept while the service operates, not for ever.",
		"A link for checking is not an authorization to download a document.",
	}
}

func certificateLimitsSpanish() []string {
	return []string{
		"Una organización autenticada envió el archivo a este servicio y miembros de esa organización declararon que lo habían revisado y aprobado. El servicio firmó su hash (SHA-256) y su tamaño.",
		"La revisión y la aprobación son declaraciones de la organización. El servicio no ha examinado el contenido, y el análisis automático del archivo no es una aprobación.",
		"issuedAt es la hora del propio reloj de este servicio. No es un sello de tiempo independiente.",
		"El título o el nombre de la organización que figuren en el certificado son palabras de la propia organización, publicadas con su autorización. El servicio no los ha verificado.",
		"No acredita autoría, veracidad, cumplimiento legal ni la identidad de ninguna persona.",
		"Una discrepancia puede deberse a otra versión legítima o a un cambio solo de metadatos. No indica quién modificó el archivo ni qué significa el cambio.",
		"Un certificado puede ser reemplazado por el de una versión posterior, o revocado. Solo una comprobación en línea muestra si sigue siendo válido; los motivos no se publican.",
		"No se garantiza disponibilidad (no hay SLA).",
		"Los certificados y sus estados se conservan mientras el servicio esté en funcionamiento, no a perpetuidad.",
		"Un enlace de comprobación no autoriza a descargar un documento.",
	}
}
