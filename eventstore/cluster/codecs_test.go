package cluster

import (
	"bytes"
	"math"
	"reflect"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"integrityledger/domain"
)

// TestArraysAsPgxEncodesThem: our plans encode the same bytes as pgx, and pgx still encodes all other types.
func TestArraysAsPgxEncodesThem(t *testing.T) {
	theirs, ours := pgtype.NewMap(), pgtype.NewMap()
	registerCodecs(ours)
	id := [16]byte{1, 2, 15: 16}
	one := int32(1)
	for _, c := range []struct {
		oid   uint32
		value any
		fast  bool
	}{
		{pgtype.UUIDArrayOID, [][16]byte{id, {}}, true},
		{pgtype.UUIDArrayOID, [][16]byte{}, true},
		{pgtype.UUIDArrayOID, [][16]byte(nil), true},
		{pgtype.UUIDArrayOID, []domain.OrganizationID{id, {}}, true},
		{pgtype.UUIDArrayOID, []domain.PublicID{id}, true},
		{pgtype.UUIDArrayOID, []*[16]byte{&id, nil}, true},
		{pgtype.UUIDOID, domain.EventID(id), false},
		{pgtype.Int8ArrayOID, []int64{0, -1, math.MaxInt64, math.MinInt64}, true},
		{pgtype.Int4ArrayOID, []int32{0, -1, math.MaxInt32, math.MinInt32}, true},
		{pgtype.Int4ArrayOID, []*int32{&one, nil}, false},
		{pgtype.Int2ArrayOID, []int16{0, -1, math.MaxInt16, math.MinInt16}, true},
		{pgtype.TextArrayOID, []string{"", "a", "año\x00", `"{},`}, true},
		{pgtype.TextArrayOID, []*string{nil}, false},
		{pgtype.ByteaArrayOID, [][]byte{{0, 255}, {}, nil}, true},
		{pgtype.TimestamptzArrayOID, []time.Time{
			{}, time.Unix(0, 0), time.Date(1999, 12, 31, 23, 59, 59, 999_999_999, time.UTC),
			time.Date(2026, 11, 21, 10, 0, 0, 123_456_789, time.FixedZone("", 3600)),
		}, true},
		{pgtype.BoolArrayOID, []bool{true, false}, false},
	} {
		prefix := []byte("prefix")
		want, wantErr := theirs.Encode(c.oid, pgtype.BinaryFormatCode, c.value, bytes.Clone(prefix))
		got, err := ours.Encode(c.oid, pgtype.BinaryFormatCode, c.value, bytes.Clone(prefix))
		if err != nil || wantErr != nil || !bytes.Equal(got, want) {
			t.Errorf("%T %v: %x %v, want %x %v", c.value, c.value, got, err, want, wantErr)
		}
		if v := reflect.ValueOf(c.value); v.Kind() == reflect.Slice && v.IsNil() {
			continue
		}
		plan := reflect.TypeOf(ours.PlanEncode(c.oid, pgtype.BinaryFormatCode, c.value))
		if fast := plan.PkgPath() == reflect.TypeFor[Primary]().PkgPath(); fast != c.fast {
			t.Errorf("%T is encoded by %s", c.value, plan)
		}
	}
}

// TestIDsAreReadIntoTheirTypes: ids and hashes are scanned into their Go types. NULL is the zero id, and previous
// values are overwritten.
func TestIDsAreReadIntoTheirTypes(t *testing.T) {
	m := pgtype.NewMap()
	registerCodecs(m)
	id := domain.OrganizationID{1, 15: 16}
	for _, c := range []struct {
		oid          uint32
		src          []byte
		target, want any
	}{
		{pgtype.UUIDOID, id[:], new(domain.OrganizationID), &id},
		{pgtype.UUIDOID, nil, new(id), new(domain.OrganizationID)},
		{pgtype.UUIDOID, nil, new(&id), new(*domain.OrganizationID)},
		{pgtype.UUIDOID, id[:], new(*domain.OrganizationID), new(&id)},
		{pgtype.ByteaOID, []byte{1, 2}, new([3]byte{9, 9, 9}), &[3]byte{1, 2}},
		{pgtype.ByteaOID, []byte{1, 2, 3}, new(*[2]byte), new(&[2]byte{1, 2})},
		{pgtype.ByteaOID, []byte{1, 2}, new([]byte), new([]byte{1, 2})},
	} {
		if err := m.Scan(c.oid, pgtype.BinaryFormatCode, c.src, c.target); err != nil ||
			!reflect.DeepEqual(c.target, c.want) {
			t.Errorf("%T of %x: %v %v, want %v", c.target, c.src, c.target, err, c.want)
		}
	}
}
