// Package jsontest generates JSON texts that are expensive for a careless parser. Tests of JSON readers measure the
// work that each text causes, and fuzz targets use the texts as seeds. It knows nothing about any reader.
package jsontest

import (
	"fmt"
	"strings"
)

// Shape is a text, named after the reason why it is expensive.
type Shape struct {
	Name string
	Text []byte
}

// depth is the depth of the deeply nested shapes, which most readers allow.
const depth = 31

// Shapes returns texts of nearly size bytes, never more; some are not JSON. members are names that the reader knows:
// each appears with every kind of value.
func Shapes(size int, members ...string) []Shape {
	list := []Shape{
		{"brackets", fill(size, "", func(int) string { return "[" }, "", "")},
		{"braces and names", fill(size, "", func(int) string { return `{"a":` }, "", "")},
		{"white space", fill(size, "{", func(int) string { return " " }, "", "}")},
		{"a string without an end", fill(size, `{"a":"`, func(int) string { return "a" }, "", "")},
		{"escaped quotes without an end", fill(size, `{"a":"`, func(int) string { return `\"` }, "", "")},
		{"commas", fill(size, "[", func(int) string { return "," }, "", "]")},
		{"a lone surrogate at the end", fill(size, `{"a":"`, func(int) string { return `\ud83d\ude00` }, "", `\ud83d"}`)},
	}
	for name, each := range map[string]func(i int) string{
		"empty names":                     func(int) string { return `"":0` },
		"one name":                        func(int) string { return `"a":0` },
		"each name twice":                 func(i int) string { return fmt.Sprintf(`"m%d":0`, i/2) },
		"few names, over and over":        func(i int) string { return fmt.Sprintf(`"%c":0`, 'a'+i%16) },
		"unknown names":                   func(i int) string { return fmt.Sprintf(`"m%d":0`, i) },
		"names with a common beginning":   func(i int) string { return fmt.Sprintf(`"%s%d":0`, strings.Repeat("a", 64), i) },
		"names to be escaped in pointers": func(i int) string { return fmt.Sprintf(`"~/%d~/~/":0`, i) },
		"names of hyphens":                func(i int) string { return fmt.Sprintf(`"%s":0`, strings.Repeat("-_", 1+i%500)) },
		"empty objects":                   func(i int) string { return fmt.Sprintf(`"m%d":{}`, i) },
	} {
		list = append(list, Shape{name, fill(size, "{", each, ",", "}")})
	}
	for what, each := range elements {
		list = append(list, Shape{"a list of " + what, fill(size, "[", each, ",", "]")})
	}
	list = append(list, Shape{"one long name", fill(size, `{"`, func(int) string { return "a" }, "", `":0}`)})
	for _, name := range members {
		begin := fmt.Sprintf(`{"%s":`, name)
		list = append(list,
			Shape{name + " over and over", fill(size, "{", func(int) string { return fmt.Sprintf(`"%s":0`, name) }, ",", "}")},
			Shape{name + " in other spellings", fill(size, "{", func(i int) string {
				return fmt.Sprintf(`"%s%s":0`, strings.Repeat("_", 1+i%50), name)
			}, ",", "}")})
		for what, each := range elements {
			list = append(list, Shape{name + ", a list of " + what, fill(size, begin+"[", each, ",", "]}")})
		}
		for what, each := range characters {
			list = append(list, Shape{name + ", a string of " + what, fill(size, begin+`"`, func(int) string {
				return each
			}, "", `"}`)})
		}
		list = append(list,
			Shape{name + ", a number of nines", fill(size, begin, func(int) string { return "9" }, "", "}")},
			Shape{name + ", a number with an exponent", fill(size, begin+"1e", func(int) string { return "9" }, "", "}")},
			Shape{name + ", an object", fill(size, begin+"{", func(i int) string {
				return fmt.Sprintf(`"m%d":{}`, i)
			}, ",", "}}")})
	}
	return list
}

var elements = map[string]func(i int) string{
	"zeros":         func(int) string { return "0" },
	"empty objects": func(int) string { return "{}" },
	"empty lists":   func(int) string { return "[]" },
	"empty strings": func(int) string { return `""` },
	"one string":    func(int) string { return `"a"` },
	"strings":       func(i int) string { return fmt.Sprintf(`"%d"`, i) },
	"unknown names": func(i int) string { return fmt.Sprintf(`{"a":%d,"b":%[1]d,"a":0}`, i) },
	"deep lists":    func(int) string { return strings.Repeat("[", depth-2) + strings.Repeat("]", depth-2) },
}

var characters = map[string]string{
	"letters":          "a",
	"escapes":          `\u00e9`,
	"surrogate pairs":  `\ud83d\ude00`,
	"escaped quotes":   `\"`,
	"NULs":             `\u0000`,
	"combining marks":  "\u0301",
	"reordered marks":  "\u0345\u0301\u0327",
	"compositions":     "a\u0308\u0304",
	"jamos":            "\u1100\u1161\u11a8",
	"segments":         "a/",
	"dots":             "../",
	"expanding folds":  "\ufb03", // ffi, which folds to three letters
	"direction marks":  "\u202e",
	"hexadecimal":      "a0",
	"padding":          "=",
	"beyond the plane": "\U0001f600",
}

// fill repeats each as often as it fits between begin and end.
func fill(size int, begin string, each func(i int) string, separator, end string) []byte {
	var b strings.Builder
	b.Grow(size)
	b.WriteString(begin)
	for i := 0; ; i++ {
		next := each(i)
		if i > 0 {
			next = separator + next
		}
		if b.Len()+len(next)+len(end) > size {
			break
		}
		b.WriteString(next)
	}
	b.WriteString(end)
	return []byte(b.String())
}
