package console

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/action"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/web"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

// endpoints adds the pages on which people register files without a program. The browser hashes the file and never
// sends it. They come before the pages of a record, whose path has a variable in the same place.
func (s registerPages) endpoints(both addition) {
	see := edge.Policy{Caller: edge.WithSession, Bucket: edge.Pages, Answer: edge.AsPage, Scope: domain.IntegrityRead}
	write := see
	write.Scope = domain.IntegrityWrite
	act := write
	act.Body = edge.BodyLongForm
	both(edge.Get, "/records/new", s.choosePage, write)
	both(edge.Get, "/records/new/reservation", s.reservePage, write)
	both(edge.Post, "/records/new/reservation", s.reserveByForm, act)
	both(edge.Get, "/records/new/file", s.filePage, write)
	both(edge.Post, "/records/new/file", s.confirmByForm, act)
	both(edge.Get, "/records/new/declaration", s.confirmPage, write)
	both(edge.Post, "/records/new/declaration", s.registerByForm, act)
	both(edge.Get, "/records/{publicId}/file", s.reservationPage, write)
	both(edge.Get, "/records/{publicId}/release", s.releasePage, write)
	both(edge.Post, "/records/{publicId}/release", s.releaseByForm, act)
	both(edge.Get, "/records/{publicId}/correct", s.correctPage, write)
	both(edge.Get, "/records/{publicId}/link", s.linkPage, see)
	both(edge.Get, "/records/{publicId}/code/{drawing}", s.drawing, see)
}

const (
	// consoleSource is the source of documents that people register here, unless they name another one.
	consoleSource = "console"
	// unknownType is the media type of a file whose type the browser does not know (RFC 2046, section 4.5.1).
	unknownType = "application/octet-stream"
	waitingRows = 100
)

// choosePage asks which of the two ways fits, and lists the reservations that wait for their file: of people, or with
// ?all of programs too.
func (s registerPages) choosePage(r *http.Request) (any, error) {
	c, source := edge.CallOf(r), consoleSource
	all := r.URL.Query().Has("all")
	if all {
		source = ""
	}
	list, more, err := s.Store.Pending(r.Context(), c.Access, source, c.Start, waitingRows)
	if err != nil {
		return nil, err
	}
	return consolePageOf(s.site.ChooseWay(web.ChooseWay{
		Console: s.frameOf(r, "register"), Waiting: wire.Each(list, s.viewWaiting), All: all, More: more,
	}))
}

func (s *Console) viewWaiting(v domain.ReservedVersion) web.Waiting {
	return web.Waiting{
		PublicID: v.PublicID.String(), Company: v.CompanyReference, Source: v.Source, Document: v.DocumentReference,
		Version: v.Version, Status: string(v.Status), ExpiresAt: v.ExpiresAt, Link: s.VerificationURL(v.PublicID.String()),
	}
}

// formOf returns the form of a declaration, with the companies in which the organization can register.
func (s registerPages) formOf(r *http.Request, name string, typed url.Values) (shown web.RegisterForm, err error) {
	c := edge.CallOf(r)
	companies, _, err := s.Store.Companies(
		r.Context(), c.Access, true, domain.CompanyActive, "", choiceCompanies,
	)
	field := func(name string) string { return strings.TrimSpace(typed.Get(name)) }
	return web.RegisterForm{
		Console:   s.frameOf(r, name),
		Companies: wire.Each(companies, func(c domain.Company) string { return c.Reference }),
		Many:      len(companies) == choiceCompanies,
		Manages:   c.Session.Role.Allows(domain.IntegrityAdmin), DefaultSource: consoleSource,
		Typed: web.Declared{
			Company: field("companyReference"), Source: field("source"), Document: field("documentReference"),
			Version: field("version"), SHA256: field("sha256"), SizeBytes: field("sizeBytes"), MimeType: field("mimeType"),
			GeneratedAt: field("generatedAt"), Reservation: field("reservationId"),
		},
	}, err
}

// typed returns the form as the person filled it in: without a version that completed has chosen, which depends on the
// reference.
func typed(form url.Values) url.Values {
	if form = maps.Clone(form); form.Has(automaticVersion) {
		form.Del("version")
	}
	return form
}

// automaticVersion is the field that says that the version was left empty.
const automaticVersion = "automatic"

// completed returns the form with a value for each field that may be left empty. The version is the next one of its
// document.
func (s registerPages) completed(r *http.Request) (url.Values, error) {
	c, form := edge.CallOf(r), typed(edge.Form(r))
	field := func(name string) string { return strings.TrimSpace(form.Get(name)) }
	for name, value := range map[string]string{
		"source": consoleSource, "mimeType": unknownType, "generatedAt": evidence.FormatTime(c.Start.Truncate(time.Second)),
	} {
		if field(name) == "" {
			form.Set(name, value)
		}
	}
	if field("version") != "" {
		return form, nil
	}
	form.Set("version", "1")
	form.Set(automaticVersion, "1")
	asked := query.RecordQuestion{
		Company: field("companyReference"), Source: field("source"), Document: field("documentReference"), Limit: 1,
	}
	if !domain.ValidReference(asked.Company) || !domain.ValidReference(asked.Source) ||
		!domain.ValidReference(asked.Document) {
		return form, nil // the reader explains them
	}
	page, err := s.Store.Records(r.Context(), c.Access, asked)
	if refused := edge.Refusal(err); refused != nil && refused.Code == domain.CompanyNotAuthorized {
		return form, nil
	}
	if len(page.Entries) > 0 {
		form.Set("version", strconv.FormatInt(int64(page.Entries[0].Version)+1, 10))
	}
	return form, err
}

// registerFields are the fields whose errors the forms explain.
func registerFields() []string {
	return []string{
		"companyReference", "source", "documentReference", "version", "sha256", "sizeBytes", "mimeType", "generatedAt",
	}
}

// explained explains a refused reservation or declaration on the page of its form. Errors of fields that the page does
// not show are explained by their code, and a version that was declared differently by the page.
func (s registerPages) explained(r *http.Request, err error) (web.Problem, int, error) {
	refused := edge.Refusal(err)
	if refused != nil && refused.Code == domain.CompanyNotAuthorized {
		err = domain.InvalidMember("/companyReference", edge.CodeUnknownValue, refused.Message)
	}
	p, status, err := s.problem(r, err)
	shown := slices.ContainsFunc(registerFields(), func(name string) bool { return p.Fields[name] })
	if refused != nil && refused.Code == domain.VersionConflict {
		return web.Problem{}, status, err
	}
	if err == nil && refused != nil && p.Text == "" && !shown {
		text := s.Codes[refused.Code].Text[edge.Language(r)]
		p = web.Problem{Text: text.Cause + " " + text.Remedy}
	}
	return p, status, err
}

// showForm shows the form of a page, also after its input was refused. The input of a reservation is shown on the
// page of the reservation.
func (s registerPages) showForm(r *http.Request, name string, typed url.Values, refused error) (any, error) {
	problem, status, err := s.explained(r, refused)
	if err != nil {
		return nil, err
	}
	shown, err := s.formOf(r, name, typed)
	if err != nil {
		return nil, err
	}
	shown.Problem = problem
	if refused := edge.Refusal(refused); refused != nil {
		shown.Conflict = refused.Code == domain.VersionConflict
	}
	if name == "register-file" { // the declaration's address shows a form that is complete
		shown.Path = web.ConsoleRoot + "/records/new/file"
	}
	if id, ok := domain.ParsePublicID(shown.Typed.Reservation); ok {
		reserved, err := s.Store.ReservedVersion(r.Context(), edge.CallOf(r).Access, id, edge.CallOf(r).Start)
		if err != nil {
			return nil, err
		}
		return s.showReservation(r, reserved, shown, status, refused)
	}
	resp, err := consolePageOf(s.site.RegisterForm(shown))
	return afterForm(resp, status, edge.Refusal(refused)), err
}

// reservePage asks for the references of a file that is not finished.
func (s registerPages) reservePage(r *http.Request) (any, error) {
	return s.showForm(r, "register-reserve", nil, nil)
}

// reserveByForm reserves a version. Reserving it again shows the same link.
func (s registerPages) reserveByForm(r *http.Request) (any, error) {
	form, err := s.completed(r)
	if err != nil {
		return nil, err
	}
	made, err := edge.Submit(
		r, strictjson.Fields(form), domain.ReadVersionReference, action.Single(s.Service, s.Reserve),
	)
	if err != nil {
		return s.showForm(r, "register-reserve", edge.Form(r), err)
	}
	if made.Status == domain.ReservationFinalized {
		return known(r, made.PublicID), nil
	}
	return onward(r, "/records/"+made.PublicID+"/file"), nil
}

// filePage asks for a finished file and its references. The query fills the form in again after a declaration was
// shown.
func (s registerPages) filePage(r *http.Request) (any, error) {
	if r.URL.Query().Has("sha256") {
		if _, id, err := s.confirmation(r, r.URL.Query()); err == nil && id != "" {
			return known(r, id), nil
		}
	}
	return s.showForm(r, "register-file", typed(r.URL.Query()), nil)
}

// correctPage asks for the file of the next version of a record's document.
func (s registerPages) correctPage(r *http.Request) (any, error) {
	record, err := s.Store.Record(r.Context(), edge.CallOf(r).Access, edge.PublicID(edge.Variable(r, "publicId")))
	if err != nil {
		return nil, err
	}
	shown, err := s.formOf(r, "register-file", url.Values{
		"companyReference": {record.CompanyReference}, "source": {record.Source},
		"documentReference": {record.DocumentReference},
	})
	if err != nil {
		return nil, err
	}
	shown.Corrects = record.PublicID.String()
	return consolePageOf(s.site.RegisterForm(shown))
}

// confirmByForm leads to the page of the declaration. The page has an address of its own, so that the browser's Back
// does not have to send the form again. The query holds the hash and the references, and the log of requests holds no
// query.
func (s registerPages) confirmByForm(r *http.Request) (any, error) {
	form, err := s.completed(r)
	if err != nil {
		return nil, err
	}
	if _, _, err := s.confirmation(r, form); err != nil {
		return s.showForm(r, "register-file", typed(edge.Form(r)), err)
	}
	shown := url.Values{}
	for _, name := range append(registerFields(), "reservationId", automaticVersion) {
		if form.Get(name) != "" {
			shown.Set(name, form.Get(name))
		}
	}
	return onward(r, "/records/new/declaration?"+shown.Encode()), nil
}

// confirmPage shows the whole declaration before it is signed. It registers nothing. The browser's Back leads here
// after the declaration was registered; then it redirects to the link of the record.
func (s registerPages) confirmPage(r *http.Request) (any, error) {
	form := r.URL.Query()
	if len(form) == 0 {
		return onward(r, "/records/new/file"), nil
	}
	confirmed, id, err := s.confirmation(r, form)
	if err != nil {
		return s.showForm(r, "register-file", typed(form), err)
	}
	if id != "" {
		return known(r, id), nil
	}
	confirmed.Path += "?" + form.Encode()
	return consolePageOf(s.site.ConfirmDeclaration(confirmed))
}

// known leads to the link of a version that is registered already.
func known(r *http.Request, id string) edge.Response {
	return onward(r, saying("/records/"+id+"/link", "known"))
}

// confirmation returns a complete declaration as its page shows it, or the error that would refuse it. If the version
// is registered already with the same file, it returns the public id of its record.
func (s registerPages) confirmation(
	r *http.Request, form url.Values,
) (confirmed web.Confirmation, registered string, err error) {
	declared, err := edge.Judged(strictjson.Fields(form), domain.ReadDeclaration)
	if err != nil {
		return confirmed, "", err
	}
	if confirmed.RegisterForm, err = s.formOf(r, "register-confirm", form); err != nil {
		return confirmed, "", err
	}
	confirmed.Typed.SHA256, confirmed.Typed.MimeType = evidence.Hash(declared.SHA256).String(), declared.MimeType
	confirmed.GeneratedAt, _ = edge.ParseInstant(string(declared.GeneratedAt)) // normalized, so valid
	c := edge.CallOf(r)
	found, _, err := s.Store.Search(r.Context(), c.Access, declared.SHA256, domain.RecordID{}, 1)
	if err != nil {
		return confirmed, "", err
	}
	confirmed.Known, confirmed.Later = wire.Each(found, viewRow), declared.Version > 1
	confirmed.Automatic = form.Has(automaticVersion)
	// A reservation that the form does not name may be another person's, whose document has its code already.
	reserved, err := s.Store.ReservedAs(r.Context(), c.Access, declared.VersionReference, c.Start)
	if refused := edge.Refusal(err); refused != nil && refused.Code == domain.ErrUnknownReservation.Code {
		err = nil
	} else if err == nil && reserved.Status == domain.ReservationFinalized {
		registered, err = reserved.PublicID.String(), s.sameFile(r, reserved.PublicID, declared.SHA256)
	} else if err == nil && declared.ReservationID == nil {
		confirmed.Reserved = []web.Waiting{s.viewWaiting(reserved)}
	}
	return confirmed, registered, err
}

// sameFile refuses another file than a record's for its version, before the person has confirmed it.
func (s registerPages) sameFile(r *http.Request, id domain.PublicID, sha256 [32]byte) error {
	record, err := s.Store.Record(r.Context(), edge.CallOf(r).Access, id)
	if err == nil && record.SHA256 != sha256 {
		return domain.Refuse(
			domain.VersionConflict,
			"This version was already declared with other data; a changed document needs a higher version number.",
		)
	}
	return err
}

// registerByForm registers the declaration that was shown. A second press of the button repeats the same declaration,
// which changes nothing.
func (s registerPages) registerByForm(r *http.Request) (any, error) {
	made, err := edge.Submit(
		r, strictjson.Fields(edge.Form(r)), domain.ReadDeclaration, action.Single(s.Service, s.Register),
	)
	if err != nil {
		return s.showForm(r, "register-file", typed(edge.Form(r)), err)
	}
	return onward(r, saying("/records/"+made.PublicID+"/link", "registered")), nil
}

// reserved finds the version in the path.
func (s registerPages) reserved(r *http.Request) (domain.ReservedVersion, error) {
	c := edge.CallOf(r)
	return s.Store.ReservedVersion(r.Context(), c.Access, edge.PublicID(edge.Variable(r, "publicId")), c.Start)
}

// reservationPage shows the link and the code of a reservation, and takes its finished file.
func (s registerPages) reservationPage(r *http.Request) (any, error) {
	reserved, err := s.reserved(r)
	if err != nil {
		return nil, err
	}
	form, err := s.formOf(r, "reservation", nil)
	if err != nil {
		return nil, err
	}
	return s.showReservation(r, reserved, form, 0, nil)
}

func (s registerPages) showReservation(
	r *http.Request, reserved domain.ReservedVersion, form web.RegisterForm, status int, refused error,
) (any, error) {
	id := reserved.PublicID.String()
	if reserved.Status == domain.ReservationFinalized && refused == nil {
		return known(r, id), nil
	}
	name := "reservation"
	if reserved.Status != domain.ReservationPending {
		name += "-" + string(reserved.Status)
	}
	form.Console = s.frameOf(r, name)
	form.Path = web.ConsoleRoot + "/records/" + id + "/file"
	form.Typed.Company, form.Typed.Source = reserved.CompanyReference, reserved.Source
	form.Typed.Document, form.Typed.Version = reserved.DocumentReference, strconv.Itoa(int(reserved.Version))
	form.Typed.Reservation = id
	code, err := s.viewCode(r, id, web.RecordRow{Document: reserved.DocumentReference, Version: reserved.Version})
	if err != nil {
		return nil, err
	}
	resp, err := consolePageOf(s.site.Reservation(web.ReservationPage{
		RegisterForm: form, Waiting: s.viewWaiting(reserved), Code: code,
	}))
	return afterForm(resp, status, edge.Refusal(refused)), err
}

// releasePage explains what releasing a reservation does.
func (s registerPages) releasePage(r *http.Request) (any, error) {
	reserved, err := s.reserved(r)
	if err != nil {
		return nil, err
	}
	if reserved.Status == domain.ReservationReleased {
		return onward(r, saying("/records/"+reserved.PublicID.String()+"/file", "released")), nil
	}
	if reserved.Status != domain.ReservationPending {
		return onward(r, "/records/"+reserved.PublicID.String()+"/file"), nil
	}
	return consolePageOf(s.site.ReleaseReservation(s.frameOf(r, "reservation-release"), s.viewWaiting(reserved)))
}

// releaseByForm releases a reservation. One that is not pending does not change.
func (s registerPages) releaseByForm(r *http.Request) (any, error) {
	_, err := edge.Submit(r, strictjson.Fields(nil), edge.ReadPublicID, action.Single(s.Service, s.Release))
	if refused := edge.Refusal(err); refused != nil && refused.Code == domain.InvalidState {
		return onward(r, "/records/"+edge.Variable(r, "publicId")+"/file"), nil // registered meanwhile
	}
	return onward(r, saying("/records/new", "released")), err
}

// linkPage shows the link of a record for the person who will receive the document.
func (s registerPages) linkPage(r *http.Request) (any, error) {
	record, err := s.Store.Record(r.Context(), edge.CallOf(r).Access, edge.PublicID(edge.Variable(r, "publicId")))
	if err != nil {
		return nil, err
	}
	id, frame := record.PublicID.String(), s.frameOf(r, "record-link")
	code, err := s.viewCode(r, id, viewRow(record))
	if err != nil {
		return nil, err
	}
	reserved, _, err := s.registration(r, record)
	if err != nil {
		return nil, err
	}
	if frame.Local && frame.Said == "registered" {
		frame.Said = "registered-here" // nobody else can open the link
	}
	return consolePageOf(s.site.RecordLink(web.RecordLink{
		Console: frame, Row: viewRow(record), SHA256: record.SHA256.String(),
		Link: s.VerificationURL(id), Code: code, Timestamps: len(s.Keys().Trusted.Authorities()) > 0,
		Reserved: reserved,
	}))
}

// viewCode describes the drawings of a public id, whose files are named after its document.
func (s registerPages) viewCode(r *http.Request, id string, of web.RecordRow) (shown web.CodeDrawings, err error) {
	shown.Of = drawingOf(of.Document, of.Version)
	shown.At = web.Path(edge.Language(r), web.ConsoleRoot+"/records/"+id+"/code/")
	for _, name := range []string{"qr", "stamp"} {
		d, err := s.draw(r, name, id)
		if err != nil {
			return shown, err
		}
		for _, module := range []int{web.SmallModule, web.LargeModule} {
			width, height := d.Millimetres(module)
			shown.Sizes = append(shown.Sizes, web.CodeSize{Name: name, Module: module, Width: width, Height: height})
		}
	}
	return shown, nil
}

// drawingOf returns the part of the name of a drawing's file that tells its document.
func drawingOf(document string, version int32) string {
	return fileName(fmt.Sprintf("-%s-v%d", document, version))
}

// draw draws the QR code of a public id, or its stamp in the language of the page.
func (s registerPages) draw(r *http.Request, name, id string) (*web.Drawing, error) {
	if name == "stamp" {
		return web.DrawStamp(s.site.StampLabel(edge.Language(r)), s.VerificationURL(id))
	}
	return web.DrawQR(s.VerificationURL(id))
}

// drawing answers a drawing as a file to save: qr or stamp, as SVG, or as PNG with modules of so many dots.
func (s registerPages) drawing(r *http.Request) (any, error) {
	reserved, err := s.reserved(r)
	if err != nil {
		return nil, err
	}
	id, file := reserved.PublicID.String(), edge.Variable(r, "drawing")
	name, kind, _ := strings.Cut(file, ".")
	name, size, _ := strings.Cut(name, "-")
	module := map[string]int{"": web.SmallModule, "large": web.LargeModule}[size]
	if name != "qr" && name != "stamp" || kind != "svg" && kind != "png" || module == 0 {
		return nil, domain.ErrUnknownRecord
	}
	d, err := s.draw(r, name, id)
	if err != nil {
		return nil, err
	}
	resp := edge.Response{
		Raw: d.SVG(), ContentType: "image/svg+xml", Cache: edge.NoStore, Header: http.Header{
			"Content-Disposition": {
				`inline; filename="` + name + drawingOf(reserved.DocumentReference, reserved.Version) + `.` + kind + `"`,
			},
		},
	}
	if kind == "png" {
		resp.ContentType = "image/png"
		resp.Raw, err = d.PNG(module)
	}
	return resp, err
}
