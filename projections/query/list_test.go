package query

import (
	"slices"
	"testing"
)

// TestPagesOfASearchDoNotOverlap: entries added between the two queries of a search are left to the next page.
// Otherwise they would appear on both.
func TestPagesOfASearchDoNotOverlap(t *testing.T) {
	row := func(n int) placed[int, int] { return placed[int, int]{n, n} }
	behind := func(a, b int) bool { return a < b }
	for _, c := range []struct {
		found  []placed[int, int]
		last   int // 0: the search has reached the end
		want   []int
		cursor int
	}{
		{[]placed[int, int]{row(9), row(7), row(4)}, 5, []int{9, 7}, 5},
		{[]placed[int, int]{row(9), row(7)}, 5, []int{9, 7}, 5},
		{[]placed[int, int]{row(9)}, 0, []int{9}, 0},
		{nil, 5, []int{}, 5},
		{[]placed[int, int]{row(9), row(7), row(4), row(3)}, -1, []int{9, 7, 4}, 4},
	} {
		page, err := searched(c.found, 3, behind, func() (int, bool, error) {
			if c.last < 0 {
				t.Error("a full page has asked how far it was searched")
			}
			return c.last, c.last > 0, nil
		})
		cursor := 0
		if page.Next != nil {
			cursor = *page.Next
		}
		if err != nil || !slices.Equal(page.Entries, c.want) || cursor != c.cursor {
			t.Errorf("%v up to %d: %v and %d, want %v and %d", c.found, c.last, page.Entries, cursor, c.want, c.cursor)
		}
	}
}
