package page_test

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"fairlead/internal/frontend/dashboard/page"
	"fairlead/internal/frontend/dashboard/source"
	"fairlead/internal/gateway/shown"
	"fairlead/internal/gateway/view"
)

// TestTimePassesWithoutAnotherValue keeps the answer of the gateway for days, while somebody always looks. A certificate
// that ends soon is named all the same, and the page of certificates is written again.
func TestTimePassesWithoutAnotherValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := time.Now().Add(14*24*time.Hour + time.Minute)
		read := func(_ context.Context, _ string, into any) error {
			into.(*view.RawData).Certificates = []shown.Certificate{{Names: []string{"a.test"}, NotAfter: end}}
			return nil
		}
		site := &page.Site{Sources: source.Of(nil, read, nil), Gateway: read}
		show := func(path string) string {
			p, _ := site.Find("/" + path)
			r, err := site.Render(t.Context(), p, url.Values{})
			if err != nil {
				t.Fatal(err)
			}
			return string(r.Main)
		}
		if strings.Contains(show(""), "a.test") {
			t.Fatal("wrong too early")
		}
		p, _ := site.Find("/certificates")
		first, _ := site.Render(t.Context(), p, url.Values{})
		for range 20 { // 5 minutes: longer than the rest, but a reader is there every 15 s (< source.Keep)
			time.Sleep(15 * time.Second)
			show("")
		}
		if !strings.Contains(show(""), "a.test") {
			t.Error("page Now says nothing of a certificate that ends within 14 days")
		}
		time.Sleep(time.Second)
		if v, _ := first.Newest(); v == first.Version {
			t.Error("the page of certificates is never written again")
		}
	})
}
