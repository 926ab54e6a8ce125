// Package table has the tables of the dashboard: sorted, filtered and divided into pages on the server, with all of
// that in the URL. It writes their HTML, and escapes every text in one place.
//
// A table of 10,000 objects builds only the rows that a page shows, unless a filter or another order needs all.
package table

import (
	"cmp"
	"hash/maphash"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// PageSize is the number of rows on a page.
const PageSize = 100

// State says how good what a cell shows is. It adds a mark before the text, and a colour.
type State string

// The states. A cell without a state has none.
const (
	OK   State = "ok"
	Warn State = "warn"
	Bad  State = "bad"
	Dim  State = "dim"
)

// Cell is what a row shows in a column.
type Cell struct {
	Text  string
	State State
	// Link is the URL that the text links to.
	Link string
	// Time, if set, is shown as its age, in place of Text.
	Time time.Time
	// Until, if set, is a time to come. What is left until then is shown, in place of Text.
	Until time.Time
	// Number orders the rows of a numeric column.
	Number float64
	// Forms are buttons after the text.
	Forms []Form
}

// Form is a button that posts fields.
type Form struct {
	Action, Button string
	// Label says more than the button, for screen readers.
	Label  string
	Fields [][2]string
}

// Column is a column of a table.
type Column struct {
	// Key is its name in URLs and filters.
	Key, Title string
	// Numeric columns are ordered by Cell.Number, and aligned to the right.
	Numeric bool
}

// Columns returns columns from the text "KEY=TITLE|KEY#=TITLE": those with # are numeric.
func Columns(text string) (all []Column) {
	for part := range strings.SplitSeq(text, "|") {
		key, title, _ := strings.Cut(part, "=")
		name, numeric := strings.CutSuffix(key, "#")
		all = append(all, Column{name, title, numeric})
	}
	return all
}

// Texts returns cells with texts.
func Texts(all ...string) []Cell {
	cells := make([]Cell, len(all))
	for i, text := range all {
		cells[i].Text = text
	}
	return cells
}

// Sorted returns the indices of n rows in an order. Equal rows keep theirs.
func Sorted(n int, compare func(a, b int) int) []int {
	at := make([]int, n)
	for i := range at {
		at[i] = i
	}
	slices.SortStableFunc(at, compare)
	return at
}

// Row is one row.
type Row struct {
	// ID is unique on the page, and stays that of the same object.
	ID    string
	Cells []Cell
}

// Table is a table of N rows.
type Table struct {
	// ID is the table's name in URLs; empty for the main table of a page.
	ID, Caption string
	Columns     []Column
	N           int
	// Row returns a row. The order is that in which the table is shown if the reader has not chosen one.
	Row func(i int) Row
	// Empty says why there is no row.
	Empty string
	// Small hides the filter.
	Small bool
}

// Query is what the reader has chosen.
type Query struct {
	Filter string
	// Sort is the key of a column, with a dash before it for the reverse order.
	Sort string
	// Page counts from 1.
	Page int
}

// View are the rows to show.
type View struct {
	Table
	Query Query
	Rows  []Row
	// Matching is the number of rows that pass the filter, and Pages that of pages.
	Matching, Pages int

	path   string
	values url.Values
}

// maxQuery limits the length of a filter.
const maxQuery = 200

// Arrange returns the rows that the reader has chosen by the values of the URL with the path.
func (t Table) Arrange(path string, values url.Values) View {
	v := View{Table: t, path: path, values: values, Query: Query{Filter: values.Get(t.name("q")),
		Sort: values.Get(t.name("sort"))}}
	v.Query.Filter = strings.ToValidUTF8(v.Query.Filter[:min(len(v.Query.Filter), maxQuery)], "")
	v.Query.Page, _ = strconv.Atoi(values.Get(t.name("page"))) // 0 is the first one
	at := v.matching()
	v.sort(at)
	v.Matching = t.N
	if at != nil {
		v.Matching = len(at)
	}
	v.Pages = max(1, (v.Matching+PageSize-1)/PageSize)
	v.Query.Page = min(max(1, v.Query.Page), v.Pages)
	for i := (v.Query.Page - 1) * PageSize; i < min(v.Matching, v.Query.Page*PageSize); i++ {
		row := i
		if at != nil {
			row = at[i]
		}
		v.Rows = append(v.Rows, t.Row(row))
	}
	return v
}

// Chosen reports whether the reader has chosen a filter, an order or a page of the table with the id.
func Chosen(id string, values url.Values) bool {
	t := Table{ID: id}
	return values.Has(t.name("q")) || values.Has(t.name("sort")) || values.Has(t.name("page"))
}

// name returns the name of a parameter of the table.
func (t Table) name(of string) string {
	if t.ID == "" {
		return of
	}
	return t.ID + "." + of
}

// matching returns the indices of the rows that pass the filter, in their order; nil for all.
func (v *View) matching() []int {
	words := strings.Fields(strings.ToLower(v.Query.Filter))
	column := v.column(v.Query.Sort)
	if len(words) == 0 && column < 0 {
		return nil
	}
	at := make([]int, 0, v.N)
	for i := range v.N {
		if len(words) == 0 || v.passes(v.Row(i), words) {
			at = append(at, i)
		}
	}
	return at
}

// passes reports whether a row has all words. A word COLUMN:TEXT is searched in that column only.
func (v *View) passes(r Row, words []string) bool {
	for _, w := range words {
		key, text, only := strings.Cut(w, ":")
		column := -1
		if only {
			if column = v.column(key); column < 0 {
				text = w
			}
		} else {
			text = w
		}
		if !slices.ContainsFunc(r.within(column), func(c Cell) bool {
			return strings.Contains(strings.ToLower(c.Text), text)
		}) {
			return false
		}
	}
	return true
}

// within returns the cell of a column, or all cells.
func (r Row) within(column int) []Cell {
	if column < 0 || column >= len(r.Cells) {
		return r.Cells
	}
	return r.Cells[column : column+1]
}

// column returns the index of a column by its key, with or without a dash, or -1.
func (v *View) column(key string) int {
	return slices.IndexFunc(v.Columns, func(c Column) bool { return c.Key == strings.TrimPrefix(key, "-") })
}

// sort orders the indices of rows as the reader has chosen.
func (v *View) sort(at []int) {
	column := v.column(v.Query.Sort)
	if column < 0 {
		return
	}
	cells := make(map[int]Cell, len(at))
	for _, i := range at {
		if r := v.Row(i); column < len(r.Cells) {
			cells[i] = r.Cells[column]
		}
	}
	order := func(a, b int) int { return compare(cells[a], cells[b]) }
	if strings.HasPrefix(v.Query.Sort, "-") {
		order = func(a, b int) int { return compare(cells[b], cells[a]) }
	}
	slices.SortStableFunc(at, order)
}

// compare orders cells by number, then time (the newest first), then text.
func compare(a, b Cell) int {
	return cmp.Or(cmp.Compare(a.Number, b.Number), b.Time.Compare(a.Time),
		cmp.Compare(strings.ToLower(a.Text), strings.ToLower(b.Text)))
}

// url returns the URL of the page with other values of the table's parameters. An empty value removes one.
func (v *View) url(change map[string]string) string {
	q := url.Values{}
	for name, values := range v.values {
		q[name] = values
	}
	for name, value := range change {
		if name = v.name(name); value == "" {
			q.Del(name)
		} else {
			q.Set(name, value)
		}
	}
	if len(q) == 0 {
		return v.path
	}
	return v.path + "?" + q.Encode()
}

// seed keeps others from choosing names whose rows have the same id: the script would show only one of them.
var seed = maphash.MakeSeed()

// ID returns an id for a row: short, without characters of the names, and the same for the same names in this process.
func ID(names ...string) string {
	var h maphash.Hash
	h.SetSeed(seed)
	for _, n := range names {
		_, _ = h.WriteString(n + "\x00") // a hash does not fail
	}
	return "r" + strconv.FormatUint(h.Sum64(), 36)
}
