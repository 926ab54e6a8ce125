package spec_test

import (
	"errors"
	"strings"
	"testing"

	"fairlead/internal/api"
	"fairlead/internal/daemon/spec"
	"fairlead/internal/model"
	"fairlead/internal/model/gateway"
)

func withServers(servers ...gateway.Server) *model.Gateway {
	return &model.Gateway{Config: gateway.Config{HTTP: gateway.HTTP{Services: map[string]*gateway.Service{
		"shop": {LoadBalancer: &gateway.LoadBalancer{Servers: servers}}}}}}
}

func drafted(before model.Desired, s api.Spec) (model.Desired, error) {
	t := spec.NewDraft(before, s, nil, func(model.Desired, model.Network) error { return nil })
	t.CheckGateway = func(model.Gateway) (api.Mistakes, []string) { return nil, nil }
	return t.Desired()
}

// TestGatewayOfSets checks which set of files may declare, change and remove the gateway, and
// the changes.
func TestGatewayOfSets(t *testing.T) {
	one, err := drafted(model.Desired{}, api.Spec{Set: "a", Gateway: withServers(gateway.Server{URL: "http://a"})})
	if err != nil || one.Gateway == nil || one.Gateway.Origin != model.FileSet("a") {
		t.Fatalf("%+v, %v", one.Gateway, err)
	}
	if all := spec.Changes(model.Desired{}, one); len(all) != 1 || all[0].String() != "gateway service shop: created" {
		t.Errorf("changes: %v", all)
	}
	if _, err := drafted(one, api.Spec{Set: "b", Gateway: withServers()}); err == nil ||
		!strings.Contains(err.Error(), "a host has one gateway, and the files of set a declare it") {
		t.Errorf("another set: %v", err)
	}
	equal := api.Spec{Set: "b", Gateway: withServers(gateway.Server{URL: "http://a"})}
	if next, err := drafted(one, equal); err != nil || next.Gateway != one.Gateway {
		t.Errorf("another set with the same gateway: %+v, %v", next.Gateway, err)
	}
	if next, err := drafted(one, api.Spec{Set: "b"}); err != nil || next.Gateway != one.Gateway {
		t.Errorf("a set without a gateway: %+v, %v", next.Gateway, err)
	}
	same, err := drafted(one, api.Spec{Set: "a", Gateway: withServers(gateway.Server{URL: "http://a"})})
	if err != nil || len(spec.Changes(one, same)) != 0 {
		t.Errorf("the same again: %v, %v", spec.Changes(one, same), err)
	}
	if next, err := drafted(one, api.Spec{Set: "a"}); err != nil || next.Gateway != nil {
		t.Errorf("removed: %+v, %v", next.Gateway, err)
	}
}

// TestGatewayServers checks the mistakes of servers.
func TestGatewayServers(t *testing.T) {
	weight := 2
	before := model.Desired{Services: []model.VirtualService{{Name: "web", Proto: model.TCP},
		{Name: "dns", Proto: model.UDP}}}
	for want, s := range map[string]gateway.Server{
		"": {Service: "web"},
		"server dns: it is a virtual service of udp":      {Service: "dns"},
		"server none: there is no such virtual service":   {Service: "none"},
		"server web: the virtual service has the weights": {Service: "web", Weight: &weight},
		"server a=b: want the port of the containers":     {Label: "a=b"},
		"server a=b: port \"http\": want a number":        {Label: "a=b", Port: "http"},
		"server http://a: want one of url, service":       {URL: "http://a", Service: "web"},
		"server without url: want one of url, service":    {},
		"server web: scheme \"ftp\": want http":           {Service: "web", Scheme: "ftp"},
	} {
		_, err := drafted(before, api.Spec{Gateway: withServers(s)})
		var found api.Mistakes
		if want == "" {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		if !errors.As(err, &found) || found[0].At != "gateway.http.services.shop" ||
			!strings.HasPrefix(found[0].Text, want) {
			t.Errorf("%+v: %v, want %s", s, err, want)
		}
	}
}
