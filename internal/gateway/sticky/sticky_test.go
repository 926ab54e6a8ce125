package sticky

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"fairlead/internal/model/gateway"
)

// TestRenew replaces cookies of earlier forms, and no others.
func TestRenew(t *testing.T) {
	of := Cookie("s@file", &gateway.Sticky{Cookie: &gateway.Cookie{SameSite: "lax"}})
	values := ServerValues("http://10.0.0.2:8080")
	for i, has := range values {
		w := httptest.NewRecorder()
		Renew(w, of, has, values[0])
		cookies := w.Result().Cookies()
		if len(cookies) != min(i, 1) {
			t.Errorf("%s: cookies %v", has, cookies)
		}
		for _, c := range cookies {
			if c.Name != of.Name || c.Value != values[0] || c.Path != "/" || c.SameSite != http.SameSiteLaxMode {
				t.Errorf("%s became %v", has, c)
			}
		}
	}
}

// TestServiceValues checks that a service of the same provider is named as the file names it, and that others have their
// provider.
func TestServiceValues(t *testing.T) {
	for service, written := range map[string]string{"s@file": "s", "s@docker": "s@docker"} {
		values := ServiceValues("w@file", service)
		if values[0] != hash(written) || !slices.Contains(values, service) || !slices.Contains(values, written) {
			t.Errorf("%s: %q", service, values)
		}
	}
	if Cookie("s@file", &gateway.Sticky{}) != nil || Cookie("s@file", nil) != nil {
		t.Error("a service without a cookie has one")
	}
}
