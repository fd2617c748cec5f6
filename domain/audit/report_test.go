package audit

import (
	"reflect"
	"testing"
)

// TestSumsAreAdded: every number of a part is included in the sum of the parts.
func TestSumsAreAdded(t *testing.T) {
	sums, part := Sums{RevokedKeys: map[string]int64{}}, Sums{RevokedKeys: map[string]int64{"k": 1}}
	for _, field := range reflect.ValueOf(&part).Elem().Fields() {
		if field.CanInt() {
			field.SetInt(1)
		}
	}
	for _, want := range []int64{1, 2} {
		sums.add(part)
		for field, value := range reflect.ValueOf(sums).Fields() {
			if value.CanInt() && value.Int() != want {
				t.Errorf("%s is %d after %d parts", field.Name, value.Int(), want)
			}
		}
		if sums.RevokedKeys["k"] != want {
			t.Errorf("RevokedKeys: %v after %d parts", sums.RevokedKeys, want)
		}
	}
}
