package gateway_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	model "fairlead/internal/model/gateway"
)

// TestSessionCookies checks that the cookies of a load balancer and of a weighted service have all attributes
// that their settings name.
func TestSessionCookies(t *testing.T) {
	path := "/shop"
	sticky := &model.Sticky{Cookie: &model.Cookie{Name: "s", Secure: true, HTTPOnly: true, SameSite: "strict",
		MaxAge: 9, Path: &path, Domain: "a.test"}}
	balanced := server(t, named("x"))
	balanced.LoadBalancer.Sticky = sticky
	w := newWorld(t, model.Static{})
	w.apply(map[string]*model.Router{
		"lb@file": {Rule: "Host(`lb.a.test`)", Service: "lb@file"},
		"w@file":  {Rule: "Host(`w.a.test`)", Service: "w@file"},
	}, map[string]*model.Service{"lb@file": balanced, "plain@file": server(t, named("x")),
		"w@file": {Weighted: &model.Weighted{Services: []model.WeightedService{{Name: "plain@file"}},
			Sticky: sticky}}})
	for _, url := range []string{"http://lb.a.test/", "http://w.a.test/"} {
		answer, err := w.client.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		c := answer.Cookies()
		if len(c) != 1 || c[0].Value == "" || !c[0].Secure || !c[0].HttpOnly || c[0].MaxAge != 9 ||
			c[0].SameSite != http.SameSiteStrictMode || c[0].Path != path || c[0].Domain != "a.test" {
			t.Errorf("%s: cookies %v", url, c)
		}
	}
}

// TestWeightedCookies checks that the cookie of a weighted service is Traefik's, so that sessions
// survive a migration in both directions, and that cookies of earlier versions are still valid.
func TestWeightedCookies(t *testing.T) {
	w := newWorld(t, model.Static{})
	w.apply(map[string]*model.Router{"w@file": {Rule: "PathPrefix(`/`)", Service: "w@file"}},
		map[string]*model.Service{"a@file": server(t, named("a")), "b@docker": server(t, named("b")),
			"w@file": {Weighted: &model.Weighted{Services: []model.WeightedService{{Name: "a@file"},
				{Name: "b@docker"}},
				Sticky: &model.Sticky{Cookie: &model.Cookie{Name: "wk"}}}}})
	// The first 16 digits of `printf a | sha256sum` and of `printf b@docker | sha256sum`.
	sent := map[string]string{"a": "ca978112ca1bbdca", "b": "3e2073a72c975e88"}
	for range 2 {
		answer, err := w.client.Get("http://w.test/")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if c := answer.Cookies(); err != nil || len(c) != 1 || c[0].Value != sent[string(body)] {
			t.Errorf("%s, %v: cookies %v, want %s", body, err, c, sent[string(body)])
		}
	}
	for value, want := range map[string]string{sent["a"]: "a", sent["b"]: "b", "a@file": "a", "b@docker": "b"} {
		for range 3 {
			r, err := http.NewRequest(http.MethodGet, "http://w.test/", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Cookie", "wk="+value)
			answer, err := w.client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(answer.Body)
			answer.Body.Close()
			renewed := len(answer.Cookies()) == 1 && answer.Cookies()[0].Value == sent[want]
			if err != nil || string(got) != want || renewed != strings.Contains(value, "@") {
				t.Errorf("cookie %s: service %s, %v, cookies %v, want %s", value, got, err, answer.Cookies(), want)
			}
		}
	}
}
