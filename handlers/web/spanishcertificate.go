package web

// certificateSpanish gives t the words in which the page of a certificate differs
// from that of a record.
func certificateSpanish(t *texts) {
	t.CheckTitle = "Comprobar un archivo con un certificado"
	t.CheckLead = "Compare el archivo que ha recibido con el que se certificó con este enlace."

	t.Dated = "Emitido"
	t.StateCheck = "Validez"
	t.File = map[string]string{
		"match": "Es exactamente el archivo certificado", "mismatch": "No es el archivo certificado", "none": "Ningún archivo comparado",
		"hash-match": "El hash pegado coincide; ningún archivo comparado", "hash-mismatch": "El hash pegado no coincide; ningún archivo comparado",
	}
	t.Signature = map[string]string{
		"valid":   "Válida: este servicio firmó el certificado (no es la firma del autor)",
		"invalid": "No validada: no es correcta, pertenece a otro certificado o su clave no es de confianza",
		"none":    "Sin determinar",
	}
	t.State = map[string]string{
		"valid": "Válido: ni reemplazado ni revocado", "replaced": "Reemplazado por el certificado de una versión posterior",
		"revoked": "Revocado por la organización", "none": "Sin determinar",
	}
	t.DetailsTitle = "Este certificado"
	t.NoDetails = "No hay ningún certificado validado que mostrar aquí."
	t.Declared = "La hora de emisión es la del propio reloj de este servicio, no un sello de tiempo independiente."
	t.OfflineSteps = []string{
		"Pida a la organización el certificado firmado, un archivo JSON. Solo ella puede descargarlo, y puede entregárselo.",
		"Obtenga las claves de confianza por un canal en el que confíe, una sola vez, y consérvelas. Una clave incluida en un certificado no puede avalarse a sí misma.",
		"Ejecute el verificador, el programa integrity, con el certificado, las claves y su archivo:",
	}
	t.OfflineNote = "Así se prueban la firma conservada y la coincidencia del archivo. No muestra si el certificado sigue siendo válido: para eso hay que consultar en línea."
	t.Outcomes = map[string]outcome{
		MatchCurrent: {"Su archivo coincide con un certificado válido",
			"Es, byte a byte, el archivo que la organización declaró revisado y aprobado. La firma de este servicio sobre el certificado es válida, y el certificado no se ha reemplazado ni revocado.",
			"Que el contenido sea cierto o lícito, quién lo escribió, cómo se revisó, ni que existiera en un momento acreditado."},
		MatchHistorical: {"Su archivo coincide, pero su certificado fue reemplazado",
			"Es, byte a byte, el archivo certificado, y la firma de este servicio es válida. Después se certificó una versión posterior del documento: este certificado ya no es válido.",
			"Qué cambia en la versión posterior, ni que esta fuera incorrecta. Tampoco autoría, veracidad ni un momento acreditado."},
		HashMismatch: {"Su archivo no es el de este certificado",
			"Su hash es distinto del firmado. Puede ser otra versión legítima o el mismo documento guardado de nuevo: un cambio solo de metadatos cambia el hash.",
			"Que alguien lo haya manipulado, quién lo modificó, ni qué significa el cambio. Asegúrese de tener el archivo que corresponde a este enlace."},
		RecordRevoked: {"Su archivo coincide, pero su certificado fue revocado",
			"Es, byte a byte, el archivo certificado, y la firma de este servicio es válida. La organización ha revocado el certificado: pregunte a quien le dio el archivo antes de confiar en él.",
			"Por qué se revocó: los motivos no se publican. Una revocación no indica que el archivo se haya modificado."},
		FileNotCompared: t.Outcomes[FileNotCompared],
		SignatureInvalid: {"No se pudo validar el certificado",
			"La firma del certificado, la confianza en su clave o su vínculo con este enlace no se sostiene, o su texto firmado se borró. Su hash no se usó y no se comparó nada. No confíe en este enlace y avise al operador del servicio.",
			"Nada sobre su archivo: no es una coincidencia ni una discrepancia."},
		NotFound: {"No hay ningún certificado con este enlace",
			"El servicio no conoce este identificador. Compare la dirección letra a letra con la que recibió.",
			"Nada sobre su archivo: no se ha comparado nada y no es una discrepancia."},
		Unavailable: t.Outcomes[Unavailable],
		HashMatch: {"Este hash coincide. No se comparó ningún archivo",
			"El hash que ha pegado es igual al firmado en este certificado; más abajo consta su validez. Aquí no se ha comprobado que su archivo tenga realmente ese hash.",
			"Nada sobre un archivo. Para comparar el propio archivo, elíjalo más abajo."},
		HashDiffers: {"Este hash no coincide. No se comparó ningún archivo",
			"El hash que ha pegado es distinto del firmado en este certificado. Puede ser el de otra versión legítima o un error al copiarlo.",
			"Nada sobre un archivo, ni que alguien haya manipulado uno."},
	}
}
