package console

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"integrityledger/domain"
	"integrityledger/domain/strictjson"
	"integrityledger/handlers/action"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/web"
	"integrityledger/handlers/wire"
	"integrityledger/projections/query"
)

// keyRows is the number of API keys on a page.
const keyRows = 50

// endpoints adds the pages of API keys.
func (s keyPages) endpoints(both addition) {
	see := edge.Policy{Caller: edge.WithSession, Bucket: edge.Pages, Answer: edge.AsPage, Scope: domain.OrganizationAdmin}
	act, create := see, see
	act.Body, create.Body = edge.BodyForm, edge.BodyLongForm
	both(edge.Get, "/keys", s.keysPage, see)
	both(edge.Get, "/keys/new", s.newKeyPage, see)
	both(edge.Post, "/keys/new", s.createKeyByForm, create)
	both(edge.Get, "/keys/{keyId}", s.keyPage, see)
	both(edge.Post, "/keys/{keyId}/rename", s.renameKeyByForm, act)
	both(edge.Post, "/keys/{keyId}/end", s.endKeyByForm, act)
	both(edge.Get, "/keys/{keyId}/rotate", s.rotateKeyPage, see)
	both(edge.Post, "/keys/{keyId}/rotate", s.rotateKeyByForm, act)
	both(edge.Get, "/keys/{keyId}/revoke", s.revokeKeyPage, see)
	both(edge.Post, "/keys/{keyId}/revoke", s.revokeKeyByForm, act)
}

// keysPage lists the active keys, or with the parameter all every key of the organization, oldest first.
func (s keyPages) keysPage(r *http.Request) (any, error) {
	c, q := edge.CallOf(r), r.URL.Query()
	after, _ := domain.ParseID[domain.KeyID](q.Get("after"))
	shown := web.Keys{Console: s.frameOf(r, "keys"), All: q.Has("all")}
	var keys []query.GrantedKey
	var more bool
	var err error
	path, mark := web.Path(edge.Language(r), web.ConsoleRoot+"/keys")+"?", ""
	if shown.All {
		keys, more, err = s.Store.KeysPage(r.Context(), c.Access.Organization, after, keyRows)
		mark = "all&"
	} else {
		keys, more, err = s.Store.LivingKeys(r.Context(), c.Access.Organization, c.Start, after, keyRows)
	}
	if err != nil {
		return nil, err
	}
	if more {
		shown.Next = path + mark + "after=" + keys[len(keys)-1].ID.String()
	}
	shown.Rows, err = s.viewKeys(r.Context(), c, keys...)
	if err != nil {
		return nil, err
	}
	return consolePageOf(s.site.Keys(shown))
}

// viewKeys returns the view of keys, with the addresses of the members that they act for and that created them.
func (s keyPages) viewKeys(ctx context.Context, c *edge.Call, keys ...query.GrantedKey) ([]web.Key, error) {
	list, err := s.Store.Members(ctx, c.Access.Organization)
	members := map[domain.MemberID]domain.Member{}
	for _, m := range list {
		members[m.ID] = m
	}
	if err != nil {
		return nil, err
	}
	rotated, err := s.rotations(ctx, c.Session.Organization)
	return wire.Each(keys, func(k query.GrantedKey) web.Key {
		v := web.Key{
			Replaces: rotated.former[k.ID], ReplacedBy: rotated.successor[k.ID],
			KeyName: keyName(k.UsedKey), Scopes: k.Scopes, Companies: k.Companies, MoreCompanies: k.More,
			Member: members[k.Member].Email,
			Actor:  k.CreatedBy.String(), ActorName: members[k.CreatedBy.Member()].Email, CreatedAt: k.CreatedAt,
			ExpiresAt: k.ExpiresAt, RevokedAt: k.RevokedAt,
			Networks: k.AllNetworks(), MaxVersionStep: k.MaxVersionStep, State: "active",
		}
		if k.LastUsedAt != nil { // cut to the minute, in which the key may have been created
			v.LastUsedAt = new(later(*k.LastUsedAt, k.CreatedAt))
		}
		if k.Source != nil {
			v.Source = *k.Source
		}
		switch {
		case k.RevokedAt != nil:
			v.State = "revoked"
		case !c.Start.Before(k.ExpiresAt):
			v.State = "ended"
		case members[k.Member].Status != domain.MemberActive:
			v.State = "idle"
		case k.EndsSoon(c.Start):
			v.State = "soon"
		}
		if v.Living = v.State != "revoked" && v.State != "ended"; v.Living {
			v.KeyWarnings = warningsOf(k, members[k.Member].Role)
		}
		v.Rotatable = v.Living && v.State != "idle" && v.Beyond == nil &&
			(members[k.Member].Role != domain.Owner || c.Session.Role == domain.Owner)
		return v
	}), err
}

// rotations are the keys that a rotation made or ended, by the key on its other side.
type rotations struct {
	former, successor map[domain.KeyID]*web.RotatedPair
}

func (s keyPages) rotations(ctx context.Context, o domain.OrganizationID) (r rotations, err error) {
	former, err := s.Store.Rotations(ctx, o)
	if err != nil || len(former) == 0 {
		return r, err
	}
	keys, err := s.Store.Keys(ctx, o)
	shown := map[domain.KeyID]*web.RotatedPair{}
	for _, k := range keys {
		shown[k.ID] = &web.RotatedPair{KeyName: keyName(k), CreatedAt: k.CreatedAt}
	}
	r = rotations{map[domain.KeyID]*web.RotatedPair{}, map[domain.KeyID]*web.RotatedPair{}}
	for after, before := range former {
		r.former[after], r.successor[before] = shown[before], shown[after]
	}
	return r, err
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// companyScopes returns the scopes that allow nothing without a company.
func companyScopes() []domain.Scope {
	return []domain.Scope{domain.IntegrityRead, domain.IntegrityWrite, domain.IntegrityRevoke}
}

// needCompany reports whether one of the scopes allows nothing without a company.
func needCompany(scopes []domain.Scope) bool {
	return slices.ContainsFunc(scopes, func(s domain.Scope) bool { return slices.Contains(companyScopes(), s) })
}

// warningsOf returns what keeps a working key from what its scopes promise.
func warningsOf(k query.GrantedKey, role domain.Role) (w web.KeyWarnings) {
	w.NoCompany = len(k.Companies) == 0 && needCompany(k.Scopes)
	for _, scope := range k.Scopes {
		if !role.Allows(scope) {
			w.Beyond = append(w.Beyond, scope)
		}
	}
	return w
}

// shownKey returns the key in the path.
func (s keyPages) shownKey(r *http.Request) (web.Key, error) {
	c := edge.CallOf(r)
	found, err := s.Store.KeyOf(r.Context(), c.Access.Organization, edge.PathID(r, "keyId", domain.ParseID[domain.KeyID]))
	if err != nil {
		return web.Key{}, err
	}
	views, err := s.viewKeys(r.Context(), c, found)
	return views[0], err
}

// fieldsOf returns the form fields that a refusal names; it returns nil for any other error.
func fieldsOf(err error) map[string]bool {
	refused := edge.Refusal(err)
	if refused == nil || len(refused.Fields) == 0 {
		return nil
	}
	fields := map[string]bool{}
	for _, f := range refused.Fields {
		name, _, _ := strings.Cut(strings.TrimPrefix(f.Pointer, "/"), "/")
		fields[name] = true
	}
	return fields
}

// refusedForm answers a page that explains why the input was refused.
func refusedForm(body []byte, err error) (edge.Response, error) {
	resp, err := consolePageOf(body, err)
	resp.Status, resp.Code = http.StatusUnprocessableEntity, domain.InvalidData
	return resp, err
}

// newKeyPage asks for the properties of a new key. It asks for a proof of identity first, so that no input is lost.
func (s keyPages) newKeyPage(r *http.Request) (any, error) {
	if err := s.recentlyProved(r); err != nil {
		return nil, err
	}
	shown, err := s.newKey(r)
	if err != nil {
		return nil, err
	}
	return consolePageOf(s.site.NewKey(shown))
}

// newKey returns the form of a key with its choices: the scopes of the person's role, and companies that accept
// versions. It chooses none of them, because a key that needs no company would see more with one.
func (s keyPages) newKey(r *http.Request) (web.NewKey, error) {
	c := edge.CallOf(r)
	companies, more, err := s.Store.Companies(
		r.Context(), c.Access, true, domain.CompanyActive, "", domain.MaxKeyCompanies,
	)
	shown := web.NewKey{
		Console: s.frameOf(r, "key-new"), MoreCompanies: more, MaxName: domain.MaxKeyName, MaxStep: domain.MaxVersion,
		Companies: wire.Each(companies, func(c domain.Company) web.Choosable { return web.Choosable{Name: c.Reference} }),
		Least:     day(c.Start), Most: lastDay(c.Start.Add(domain.MaxKeyLifetime)),
	}
	if err == nil && len(companies) == 0 {
		companies, _, err = s.Store.Companies(r.Context(), c.Access, true, domain.CompanyClosedStatus, "", 1)
		shown.AllClosed = len(companies) > 0
	}
	for _, g := range scopeGroups() {
		group := web.ScopeGroup{Name: g.name}
		for _, scope := range g.scopes {
			if c.Session.Role.Allows(scope) {
				group.Scopes = append(group.Scopes, web.Choosable{Name: string(scope)})
			}
		}
		if len(group.Scopes) > 0 {
			shown.Scopes = append(shown.Scopes, group)
		}
	}
	return shown, err
}

type scopeGroup struct {
	name   string
	scopes []domain.Scope
}

// scopeGroups returns all scopes in the order of the key form: the scopes that most keys need come first.
func scopeGroups() []scopeGroup {
	return []scopeGroup{
		{"Registering", companyScopes()},
		{"Certification", []domain.Scope{
			domain.VerifyRead, domain.ArtifactsRead, domain.ArtifactsWrite, domain.AnalysesRead, domain.ReviewsWrite,
			domain.ApprovalsWrite, domain.CertificatesRead,
			domain.CertificatesWrite,
		}},
		{
			"Administration",
			[]domain.Scope{domain.AuditRead, domain.MetricsRead, domain.IntegrityAdmin, domain.OrganizationAdmin},
		},
	}
}

// day formats a date for forms, in UTC.
func day(at time.Time) string { return at.UTC().Format(time.DateOnly) }

// lastDay returns the last date that is over at an end: the day before, if the end is within a day.
func lastDay(end time.Time) string { return day(end.AddDate(0, 0, -1)) }

// keyFields returns the fields of the key form in the form of the API.
func keyFields(r *http.Request) *strictjson.Object {
	f := maps.Clone(edge.Form(r))
	f["companies"] = slices.Compact(slices.Sorted(slices.Values(f["companies"])))
	f["networks"] = strings.Fields(f.Get("networks"))
	fromDay(f, "expiresAt", 1)
	return strictjson.Fields(f)
}

// readFormKey reads a key as the API does, but a key whose scopes need a company is refused without one unless the
// person has ticked that it has none yet. A key with companies is refused if the person has ticked that too.
func readFormKey(o *strictjson.Object) domain.CreateKey {
	k, without := action.ReadNewKey(o), o.Bool("withoutCompany", strictjson.Optional)
	if without == (len(k.Companies) > 0) && (without || needCompany(k.Scopes)) {
		o.Problem(
			"withoutCompany", strictjson.CodeRequired,
			"must be given if a key that registers, reads or revokes records has no company, and only if it has none",
		)
	}
	return k
}

// createKeyByForm creates a key for the person. Only this page shows its text.
func (s keyPages) createKeyByForm(r *http.Request) (any, error) {
	if err := s.recentlyProved(r); err != nil {
		return nil, err
	}
	made, err := edge.Submit(r, keyFields(r), readFormKey, s.MakeKey)
	if err == nil {
		return s.showMade(r, web.MadeKey{KeyName: web.KeyName{Name: textOf(edge.Form(r), "name")}}, made)
	}
	wrong := fieldsOf(err)
	if wrong == nil {
		return nil, err
	}
	shown, err := s.newKey(r)
	if err != nil {
		return nil, err
	}
	f := edge.Form(r)
	shown.Wrong, shown.Name, shown.Source, shown.Networks = wrong, f.Get("name"), f.Get("source"), f.Get("networks")
	shown.Step, shown.Ends, shown.WithoutCompany = f.Get("maxVersionStep"), f.Get("expiresAt"), f.Has("withoutCompany")
	for _, group := range shown.Scopes {
		for i, scope := range group.Scopes {
			group.Scopes[i].Chosen = slices.Contains(f["scopes"], scope.Name)
		}
	}
	for i := range shown.Companies {
		shown.Companies[i].Chosen = slices.Contains(f["companies"], shown.Companies[i].Name)
	}
	return refusedForm(s.site.NewKey(shown))
}

// showMade shows the text of a key, which no other page shows.
func (s keyPages) showMade(r *http.Request, shown web.MadeKey, made action.MadeKey) (any, error) {
	shown.Console, shown.BaseURL = s.frameOf(r, "key-made"), s.BaseURL
	shown.ID, shown.Key, shown.ExpiresAt = made.ID.String(), made.Text, made.ExpiresAt
	// The key exists, and only this answer shows its text, so a failure here must not hide it.
	if key, err := s.Store.KeyOf(r.Context(), made.Organization, made.ID); err == nil {
		shown.Scopes, shown.Companies = key.Scopes, key.Companies
		shown.NoCompany = warningsOf(key, edge.CallOf(r).Session.Role).NoCompany
	}
	return consolePageOf(s.site.MadeKey(shown))
}

// keyPage shows a key and the possible actions on it.
func (s keyPages) keyPage(r *http.Request) (any, error) {
	key, err := s.shownKey(r)
	if err != nil {
		return nil, err
	}
	return consolePageOf(s.site.Key(s.keyForm(r, key)))
}

// keyForm returns a key with its forms. A key that expires today cannot be made to end on an earlier day.
func (s keyPages) keyForm(r *http.Request, key web.Key) web.KeyForm {
	shown := web.KeyForm{
		Console: s.frameOf(r, "key"), Key: key, Typed: key.Name, MaxName: domain.MaxKeyName, Least: day(edge.CallOf(r).Start),
		Most: lastDay(key.ExpiresAt),
	}
	if shown.Most >= shown.Least {
		shown.Ends = shown.Most
	}
	return shown
}

// changedKey changes one field of a key by a form, or explains why the input was refused.
func (s keyPages) changedKey(r *http.Request, field string) (any, error) {
	key, err := s.shownKey(r)
	if err != nil {
		return nil, err
	}
	f := url.Values{field: {edge.Form(r).Get(field)}}
	fromDay(f, "expiresAt", 1)
	_, err = edge.Submit(r, strictjson.Fields(f), func(o *strictjson.Object) domain.ChangeKey {
		change := action.ReadKeyChange(o)
		if change.Name == nil && change.ExpiresAt == nil && o.OK(field) {
			o.Problem(field, strictjson.CodeRequired, "the field is required")
		}
		return change
	}, s.UpdateKey)
	if err == nil {
		return onward(r, saying("/keys/"+key.ID, "key-"+field)), nil
	}
	fields := fieldsOf(err)
	if fields == nil {
		return nil, err
	}
	shown := s.keyForm(r, key)
	shown.Wrong, shown.Path = fields, web.ConsoleRoot+"/keys/"+key.ID
	if field == "name" {
		shown.Typed = edge.Form(r).Get(field)
	} else {
		shown.Ends = edge.Form(r).Get(field)
	}
	return refusedForm(s.site.Key(shown))
}

func (s keyPages) renameKeyByForm(r *http.Request) (any, error) { return s.changedKey(r, "name") }

// endKeyByForm makes a key end earlier.
func (s keyPages) endKeyByForm(r *http.Request) (any, error) { return s.changedKey(r, "expiresAt") }

// keyOverlaps are the choices for how long a rotated key keeps working, in hours.
func keyOverlaps() []int { return []int{0, 1, 24, 7 * 24, 30 * 24} }

// rotateKeyPage explains the effect of a rotation before it is made. For a key that cannot be rotated it redirects to
// the key's page, which offers the possible actions.
func (s keyPages) rotateKeyPage(r *http.Request) (any, error) {
	if err := s.recentlyProved(r); err != nil {
		return nil, err
	}
	key, err := s.shownKey(r)
	if err != nil {
		return nil, err
	}
	if !key.Rotatable {
		return onward(r, "/keys/"+key.ID), nil
	}
	now := edge.CallOf(r).Start
	form := web.RotatedKey{
		Console: s.frameOf(r, "key-rotate"), Key: key, Overlaps: keyOverlaps(),
		Overlap: int(action.DefaultKeyOverlap.Hours()), CopyGrants: true,
		Least: day(now), Most: lastDay(now.Add(domain.MaxKeyLifetime)),
	}
	if ends := lastDay(key.ExpiresAt); ends >= form.Least { // like the other limits of the key
		form.Ends = ends
	}
	return consolePageOf(s.site.RotateKey(form))
}

// rotateKeyByForm creates the successor of a key. Only this page shows its text.
func (s keyPages) rotateKeyByForm(r *http.Request) (any, error) {
	if err := s.recentlyProved(r); err != nil {
		return nil, err
	}
	key, err := s.shownKey(r)
	if err != nil {
		return nil, err
	}
	f := maps.Clone(edge.Form(r))
	hours, _ := strconv.Atoi(f.Get("overlap"))
	f.Set("overlapSeconds", inSeconds(f.Get("overlap"), keyOverlaps()))
	fromDay(f, "expiresAt", 1)
	made, err := edge.Submit(r, strictjson.Fields(f), action.ReadKeyRotation, s.Succeed)
	if err == nil {
		return s.showMade(r, web.MadeKey{
			KeyName: web.KeyName{Name: key.Name}, FormerEnds: &made.Former.ExpiresAt, FormerOver: made.Former.RevokedAt != nil,
		}, made)
	}
	wrong := fieldsOf(err)
	if wrong == nil {
		return nil, err
	}
	return refusedForm(s.site.RotateKey(web.RotatedKey{
		Console: s.frameOf(r, "key-rotate"), Key: key, Overlaps: keyOverlaps(), Overlap: hours,
		CopyGrants: f.Has("copyGrants"), Ends: edge.Form(r).Get("expiresAt"), Wrong: wrong,
		Least: day(edge.CallOf(r).Start), Most: lastDay(edge.CallOf(r).Start.Add(domain.MaxKeyLifetime)),
	}))
}

// revokeKeyPage explains the effect of a revocation before it is made. A key that has ended needs none.
func (s keyPages) revokeKeyPage(r *http.Request) (any, error) {
	key, err := s.shownKey(r)
	if err != nil {
		return nil, err
	}
	if !key.Living {
		return onward(r, "/keys/"+key.ID), nil
	}
	return consolePageOf(s.site.RevokeKey(web.KeyForm{Console: s.frameOf(r, "key-revoke"), Key: key}))
}

func (s keyPages) revokeKeyByForm(r *http.Request) (any, error) {
	_, err := edge.Submit(r, strictjson.Fields(edge.Form(r)), action.ReadKeyID, s.RevokeKey)
	return onward(r, saying("/keys/"+edge.Variable(r, "keyId"), "key-revoked")), err
}
