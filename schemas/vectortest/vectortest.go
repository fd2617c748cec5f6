// Package vectortest reads and writes schemas/verification-vectors.json for tests. In the file, a receipt is either a
// text or a list of parts: texts, and pairs [start, length] that name characters (Unicode code points) of the receipt
// of the vector "from". Omitted members of a vector, and of its findings, have the values in the file's "defaults".
package vectortest

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"

	"integrityledger/schemas"
)

type file struct {
	Description string            `json:"description"`
	Version     int               `json:"version"`
	TrustedKeys map[string]string `json:"trustedKeys"`
	Defaults    map[string]any    `json:"defaults,omitempty"`
	Vectors     []map[string]any  `json:"vectors"`
}

// Read returns the published file, expanded.
func Read() ([]byte, error) {
	text, err := schemas.File(schemas.VectorsFile)
	if err != nil {
		return nil, err
	}
	return Expand(text)
}

// Expand returns a published file with complete vectors and without defaults.
func Expand(text []byte) ([]byte, error) {
	f, err := decode(text)
	if err != nil {
		return nil, err
	}
	receipts := map[string][]rune{}
	for _, v := range f.Vectors {
		if receipt, whole := v["receipt"].(string); whole {
			receipts[v["name"].(string)] = []rune(receipt)
		}
	}
	for i, v := range f.Vectors {
		if parts, ok := v["receipt"].([]any); ok {
			of, whole := receipts[v["from"].(string)], ""
			for _, part := range parts {
				if pair, ok := part.([]any); ok {
					start := int(pair[0].(float64))
					part = string(of[start : start+int(pair[1].(float64))])
				}
				whole += part.(string)
			}
			v["receipt"] = whole
			delete(v, "from")
		}
		f.Vectors[i] = merged(f.Defaults, v)
	}
	f.Defaults = nil
	return encode(f)
}

// merged returns v completed with defaults.
func merged(defaults, v map[string]any) map[string]any {
	all := maps.Clone(defaults)
	for name, value := range v {
		inner, ok := value.(map[string]any)
		if of, both := defaults[name].(map[string]any); ok && both {
			value = merged(of, inner)
		}
		all[name] = value
	}
	return all
}

// Compact is the inverse of Expand. A receipt that shares most of its text with the receipt of a vector named in bases
// is written as parts of it, any other receipt in full.
func Compact(text []byte, bases ...string) ([]byte, error) {
	f, err := decode(text)
	if err != nil {
		return nil, err
	}
	f.Defaults = usual(f.Vectors)
	f.Defaults["receipt"], f.Defaults["receiptBase64"] = nil, nil
	for i, v := range f.Vectors {
		f.Vectors[i] = differing(f.Defaults, v)
	}
	of := make([]base, len(bases))
	for _, v := range f.Vectors {
		if i := slices.Index(bases, v["name"].(string)); i >= 0 {
			of[i] = newBase(bases[i], v["receipt"].(string))
		}
	}
	for _, v := range f.Vectors {
		receipt, ok := v["receipt"].(string)
		if !ok || slices.Contains(bases, v["name"].(string)) {
			continue
		}
		least := len(receipt) / 2
		for _, b := range of {
			if parts, cost := b.parts(receipt); cost < least {
				v["from"], v["receipt"], least = b.name, parts, cost
			}
		}
	}
	return encode(f)
}

// usual returns the most frequent value of each member.
func usual(vectors []map[string]any) map[string]any {
	all := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(vectors[0])) {
		var inner []map[string]any
		counts, values := map[string]int{}, map[string]any{}
		for _, v := range vectors {
			if object, ok := v[name].(map[string]any); ok {
				inner = append(inner, object)
			}
			text, _ := json.Marshal(v[name])
			counts[string(text)]++
			values[string(text)] = v[name]
		}
		if inner != nil {
			all[name] = usual(inner)
			continue
		}
		most := slices.MaxFunc(slices.Sorted(maps.Keys(counts)), func(a, b string) int { return counts[a] - counts[b] })
		all[name] = values[most]
	}
	delete(all, "name")
	return all
}

// differing returns the members of v whose values are not the defaults.
func differing(defaults, v map[string]any) map[string]any {
	rest := map[string]any{}
	for name, value := range v {
		of, known := defaults[name]
		if known && reflect.DeepEqual(of, value) {
			continue
		}
		inner, ok := value.(map[string]any)
		if outer, both := of.(map[string]any); ok && both {
			value = differing(outer, inner)
		}
		rest[name] = value
	}
	return rest
}

// gram is the length of the substrings used to find common parts.
const gram = 24

// base is a receipt written in full, with the first position of each gram.
type base struct {
	name   string
	text   []rune
	places map[string]int
}

func newBase(name, receipt string) base {
	b := base{name, []rune(receipt), map[string]int{}}
	for i := range len(b.text) - gram {
		if g := string(b.text[i : i+gram]); b.places[g] == 0 {
			b.places[g] = i
		}
	}
	return b
}

// parts represents a receipt as parts of the base. cost is about their length in bytes.
func (b base) parts(receipt string) (parts []any, cost int) {
	text, literal := []rune(receipt), 0 // literal is the start of the text that the base lacks
	flush := func(end int) {
		if literal < end {
			parts = append(parts, string(text[literal:end]))
			cost += end - literal
		}
	}
	for i := 0; i < len(text); {
		place, found := b.places[string(text[i:min(i+gram, len(text))])]
		if !found {
			i++
			continue
		}
		for i > literal && place > 0 && b.text[place-1] == text[i-1] {
			i, place = i-1, place-1
		}
		length := 0
		for place+length < len(b.text) && i+length < len(text) && b.text[place+length] == text[i+length] {
			length++
		}
		flush(i)
		parts = append(parts, []int{place, length})
		cost += gram
		i += length
		literal = i
	}
	flush(len(text))
	return parts, cost
}

func decode(text []byte) (f file, err error) {
	err = json.Unmarshal(text, &f)
	return f, err
}

// encode writes one line per vector.
func encode(f file) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	head := f
	head.Vectors = nil
	if err := encoder.Encode(head); err != nil {
		return nil, err
	}
	text.Truncate(text.Len() - len("null}\n"))
	for i, v := range f.Vectors {
		text.WriteString([]string{"[\n", ","}[min(i, 1)])
		if err := encoder.Encode(v); err != nil {
			return nil, err
		}
	}
	text.WriteString("]}\n")
	return text.Bytes(), nil
}
