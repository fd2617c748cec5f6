package cluster

import (
	"encoding/binary"
	"reflect"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// A group is written with a few statements over arrays of hundreds of elements. pgx encodes an array element by element
// through interfaces and grows its buffer from 256 bytes, which took an eighth of the service's time. The plans below
// know the element's type and the array's size, so they grow the buffer once and make one pass. Other types are left to
// pgx.

// arrayCodec encodes slices of one Go type in PostgreSQL's binary array format (array_recv in the server's source). It
// leaves everything else to the wrapped codec.
type arrayCodec[T any] struct {
	pgtype.Codec
	element uint32      // OID
	size    func(T) int // bytes of an element; -1 for NULL
	append  func(buf []byte, v T) []byte
}

// PlanEncode implements pgtype.Codec.
func (c arrayCodec[T]) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, ok := value.([]T); ok && format == pgtype.BinaryFormatCode {
		return c
	}
	return c.Codec.PlanEncode(m, oid, format, value)
}

const arrayHeader = 20

// Encode implements pgtype.EncodePlan.
func (c arrayCodec[T]) Encode(value any, buf []byte) ([]byte, error) {
	list := value.([]T)
	total, null := arrayHeader+4*len(list), uint32(0)
	for _, v := range list {
		if n := c.size(v); n >= 0 {
			total += n
		} else {
			null = 1
		}
	}
	buf = appendHeader(slices.Grow(buf, total), null, c.element, len(list))
	for _, v := range list {
		n := c.size(v)
		buf = binary.BigEndian.AppendUint32(buf, uint32(n)) // all bits set for NULL
		if n >= 0 {
			buf = c.append(buf, v)
		}
	}
	return buf, nil
}

func appendHeader(buf []byte, null, element uint32, n int) []byte {
	buf = binary.BigEndian.AppendUint32(buf, 1) // dimension
	buf = binary.BigEndian.AppendUint32(buf, null)
	buf = binary.BigEndian.AppendUint32(buf, element)
	buf = binary.BigEndian.AppendUint32(buf, uint32(n))
	return binary.BigEndian.AppendUint32(buf, 1) // the first index
}

// idCodec does the same for slices of every Go type whose underlying type is [16]byte: the domain has one id type per
// kind. A single id needs no plan, because pgx finds the underlying type.
type idCodec struct{ pgtype.Codec }

// PlanEncode implements pgtype.Codec.
func (c idCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	t := reflect.TypeOf(value)
	if format == pgtype.BinaryFormatCode && t != nil && t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Array &&
		t.Elem().ConvertibleTo(reflect.TypeFor[[16]byte]()) {
		return c
	}
	return c.Codec.PlanEncode(m, oid, format, value)
}

// Encode implements pgtype.EncodePlan.
func (c idCodec) Encode(value any, buf []byte) ([]byte, error) {
	list := reflect.ValueOf(value)
	n := list.Len()
	buf = appendHeader(slices.Grow(buf, arrayHeader+(4+16)*n), 0, pgtype.UUIDOID, n)
	for i := range n {
		buf = append(binary.BigEndian.AppendUint32(buf, 16), list.Index(i).Bytes()...)
	}
	return buf, nil
}

// bytesCodec scans ids, and bytes of a fixed length such as hashes, into Go arrays like copy. NULL becomes the zero id.
// Bytes of a wrong length become a different hash, which verifies nothing.
type bytesCodec struct{ pgtype.Codec }

// PlanScan implements pgtype.Codec.
func (c bytesCodec) PlanScan(m *pgtype.Map, oid uint32, format int16, target any) pgtype.ScanPlan {
	if t := reflect.TypeOf(target).Elem(); format == pgtype.BinaryFormatCode && t.Kind() == reflect.Array &&
		t.Elem().Kind() == reflect.Uint8 {
		return c
	}
	return c.Codec.PlanScan(m, oid, format, target)
}

// Scan implements pgtype.ScanPlan.
func (bytesCodec) Scan(src []byte, target any) error {
	to := reflect.ValueOf(target).Elem().Bytes()
	clear(to[copy(to, src):])
	return nil
}

// registerCodecs replaces the codecs of the arrays that groups are written with, and makes ids and hashes scan into
// their Go types and times scan in UTC.
func registerCodecs(m *pgtype.Map) {
	registerArray(m, "_uuid", pgtype.UUIDOID, func(v *[16]byte) int {
		if v == nil {
			return -1
		}
		return 16
	}, func(buf []byte, v *[16]byte) []byte { return append(buf, v[:]...) })
	register(m, "_uuid", func(c pgtype.Codec) pgtype.Codec { return idCodec{c} })
	register(m, "uuid", func(c pgtype.Codec) pgtype.Codec { return bytesCodec{c} })
	register(m, "bytea", func(c pgtype.Codec) pgtype.Codec { return bytesCodec{c} })
	registerArray(m, "_int8", pgtype.Int8OID, func(int64) int { return 8 }, func(buf []byte, v int64) []byte {
		return binary.BigEndian.AppendUint64(buf, uint64(v))
	})
	registerArray(m, "_int4", pgtype.Int4OID, func(int32) int { return 4 }, func(buf []byte, v int32) []byte {
		return binary.BigEndian.AppendUint32(buf, uint32(v))
	})
	registerArray(m, "_int2", pgtype.Int2OID, func(int16) int { return 2 }, func(buf []byte, v int16) []byte {
		return binary.BigEndian.AppendUint16(buf, uint16(v))
	})
	registerArray(m, "_text", pgtype.TextOID, func(v string) int { return len(v) }, func(buf []byte, v string) []byte {
		return append(buf, v...)
	})
	registerArray(m, "_bytea", pgtype.ByteaOID, func(v []byte) int {
		if v == nil {
			return -1
		}
		return len(v)
	}, func(buf, v []byte) []byte { return append(buf, v...) })
	register(m, "timestamptz", func(pgtype.Codec) pgtype.Codec { return &pgtype.TimestamptzCodec{ScanLocation: time.UTC} })
	registerArray(m, "_timestamptz", pgtype.TimestamptzOID, func(time.Time) int { return 8 },
		func(buf []byte, v time.Time) []byte {
			return binary.BigEndian.AppendUint64(buf, uint64(v.UnixMicro()-postgresEpoch))
		})
}

// postgresEpoch is 2000-01-01 in microseconds of the Unix epoch.
const postgresEpoch = 946_684_800_000_000

func registerArray[T any](
	m *pgtype.Map, name string, element uint32, size func(T) int, appendValue func([]byte, T) []byte,
) {
	register(m, name, func(c pgtype.Codec) pgtype.Codec { return arrayCodec[T]{c, element, size, appendValue} })
}

// register wraps the codec of a type if this version of pgx has it.
func register(m *pgtype.Map, name string, surround func(pgtype.Codec) pgtype.Codec) {
	if known, ok := m.TypeForName(name); ok {
		m.RegisterType(&pgtype.Type{Name: known.Name, OID: known.OID, Codec: surround(known.Codec)})
	}
}
