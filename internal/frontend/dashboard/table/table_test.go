package table_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"fairlead/internal/frontend/dashboard/table"
)

// numbers is a table of n rows: their numbers, and whether they are even.
func numbers(n int) table.Table {
	return table.Table{Caption: "Numbers", N: n, Columns: table.Columns("number#=Number|kind=Kind"),
		Row: func(i int) table.Row {
			cells := table.Texts(fmt.Sprint(i), []string{"even", "odd"}[i%2])
			cells[0].Number = float64(i)
			return table.Row{ID: table.ID(cells[0].Text), Cells: cells}
		}}
}

// TestArrange: the URL decides which rows are shown, in which order, and what cannot be used is ignored.
func TestArrange(t *testing.T) {
	for query, want := range map[string]string{
		"":                              "0 1 2 of 250 on 3",
		"page=3":                        "200 201 202 of 250 on 3",
		"page=99":                       "200 201 202 of 250 on 3",
		"page=-1":                       "0 1 2 of 250 on 3",
		"page=x":                        "0 1 2 of 250 on 3",
		"sort=-number":                  "249 248 247 of 250 on 3",
		"sort=-kind":                    "1 3 5 of 250 on 3",
		"sort=nothing":                  "0 1 2 of 250 on 3",
		"q=odd":                         "1 3 5 of 125 on 2",
		"q=ODD+9":                       "9 19 29 of 33 on 1",
		"q=number:9":                    "9 19 29 of 43 on 1",
		"q=kind:9":                      " of 0 on 1",
		"q=10.0.0.1:80":                 " of 0 on 1",
		"q=odd&sort=-number&page=2":     "49 47 45 of 125 on 2",
		"q=" + strings.Repeat("x", 999): " of 0 on 1",
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		v := numbers(250).Arrange("/numbers", values)
		var first []string
		for _, r := range v.Rows[:min(3, len(v.Rows))] {
			first = append(first, r.Cells[0].Text)
		}
		if got := fmt.Sprintf("%s of %d on %d", strings.Join(first, " "), v.Matching, v.Pages); got != want {
			t.Errorf("%.40s: %s, want %s", query, got, want)
		}
	}
}

// TestLinksKeepTheRest: a link that sorts keeps the filter and the state of other tables, and begins at the first page.
func TestLinksKeepTheRest(t *testing.T) {
	values := url.Values{"q": {"odd"}, "page": {"2"}, "other.sort": {"x"}}
	html := string(numbers(250).Arrange("/numbers", values).HTML())
	for _, want := range []string{`href="/numbers?other.sort=x&amp;q=odd&amp;sort=number"`,
		`href="/numbers?other.sort=x&amp;q=odd"`, `<input type="hidden" name="other.sort" value="x">`, `scope="col"`,
		`<th scope="row" class="num">`, "Page 2 of 2", "125 of 250"} {
		if !strings.Contains(html, want) {
			t.Errorf("the table has no %s:\n%.2000s", want, html)
		}
	}
}

// TestLargeTable: a page of 10,000 rows builds only the rows that it shows.
func TestLargeTable(t *testing.T) {
	built := 0
	large := numbers(10_000)
	row := large.Row
	large.Row = func(i int) table.Row { built++; return row(i) }
	if v := large.Arrange("/", nil); len(v.Rows) != table.PageSize || built != table.PageSize {
		t.Errorf("%d rows are shown, and %d built", len(v.Rows), built)
	}
}

// TestRowsOfChosenNames: two names with the same FNV-1a hash, which anybody can find, have rows with different ids.
func TestRowsOfChosenNames(t *testing.T) {
	if table.ID("8yn0iYCKYHlIj4-BwPqk") == table.ID("GReLUrM4wMqfg9yzV3KQ") {
		t.Error("both rows have the same id: the script shows one of them")
	}
}
