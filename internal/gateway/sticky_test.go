package gateway_test

import (
	"net/http"
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
		"w@file": {Weighted: &model.Weighted{Services: []model.WeightedService{{Name: "plain@file"}}, Sticky: sticky}}})
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
