package view_test

import (
	"strings"
	"testing"

	"fairlead/internal/gateway/shown"
	"fairlead/internal/gateway/status"
	"fairlead/internal/gateway/view"
	"fairlead/internal/model/gateway"
)

// TestPanicHidesOneObject shows a service whose state cannot be read: the others are shown as usual.
func TestPanicHidesOneObject(t *testing.T) {
	service := func() *gateway.Service {
		return &gateway.Service{LoadBalancer: &gateway.LoadBalancer{Servers: []gateway.Server{{URL: "http://a.test"}}}}
	}
	shown := view.Of(view.Source{Static: &gateway.Static{}, Config: &gateway.Config{HTTP: gateway.HTTP{
		Services: map[string]*gateway.Service{"good@file": service(), "bad@file": service()}}},
		Objects: []status.Status{{Kind: "service", Name: "bad@file", State: "enabled"},
			{Kind: "service", Name: "good@file", State: "enabled"}},
		Failures: func(string) map[string]shown.Failure { return nil },
		Down: func(service string) []string {
			if service == "bad@file" {
				panic("no state")
			}
			return nil
		}})
	if bad := shown.Services["bad@file"]; !strings.Contains(strings.Join(bad.Errors, ""), "no state") {
		t.Errorf("the service is %+v", bad)
	}
	if good := shown.Services["good@file"]; len(good.Errors) > 0 || good.ServerStatus["http://a.test"] != "UP" {
		t.Errorf("the other service is %+v", good)
	}
}
