package wire

import "integrityledger/domain"

// UsageEntries is a page of what a month's allowance was charged with. Figures and entries are those of the
// organization's sequence ThroughSequence, on every page alike. NextCursor is opaque.
type UsageEntries struct {
	Period          domain.Period `json:"period"`
	ThroughSequence int64         `json:"throughSequence"`
	Organization    EntriesUsed   `json:"organization"`
	Entries         []UsageEntry  `json:"entries"`
	NextCursor      *string       `json:"nextCursor"`
	HasMore         bool          `json:"hasMore"`
}

// EntriesUsed is the month's use: Visible entries are of companies granted to the key, and only those are listed; Used
// is their sum with NotVisible.
type EntriesUsed struct {
	Used       int64 `json:"used"`
	Visible    int64 `json:"visible"`
	NotVisible int64 `json:"notVisible"`
}

// UsageEntry is one new version, with the event of its registration.
type UsageEntry struct {
	EventID           string `json:"eventId"`
	Sequence          int64  `json:"sequence"`
	OccurredAt        string `json:"occurredAt"`
	PublicID          string `json:"publicId"`
	CompanyReference  string `json:"companyReference"`
	Source            string `json:"source"`
	DocumentReference string `json:"documentReference"`
	Version           int32  `json:"version"`
}
