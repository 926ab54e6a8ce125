package wording

import (
	"fmt"
	"strings"
	"testing"
)

func TestReadableCountsManyBuckets(t *testing.T) {
	line := func(verb string, n int, value func(int) string) string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprint(i) + value(i)
		}
		return verb + " element inet fairlead-services reals-web { " + strings.Join(all, ", ") + " }\n"
	}
	real := func(i int) string { return fmt.Sprintf(" : 10.0.0.%d . 80", 1+i%3) }
	none := func(int) string { return "" }
	whole := "nft -f - <<'EOF'\n" + line("add", 16, real) +
		"add element inet fairlead-services services4 { 192.0.2.1 . tcp . 80 : goto service-web }\n"
	for commands, want := range map[string]string{
		whole: whole,
		"a\n" +
			line("add", 17,
				real): "a\n# add element inet fairlead-services reals-web: 17 buckets: 6 to 10.0.0.1 . 80, 6 to 10.0.0.2 . 80, 5 to 10.0.0.3 . 80 (-o json lists them)\n",
		line("delete", 40,
			none): "# delete element inet fairlead-services reals-web: 40 buckets (-o json lists them)\n",
		"": "",
	} {
		if got := Readable(commands); got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
	}
}
