package file_test

import (
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/frontend/file"
	"fairlead/internal/frontend/schema"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
)

// compiled returns the schema as a validator reads it.
func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	text, err := json.Marshal(file.Schema())
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("fairlead.json", document); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("fairlead.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// validate checks each document of a YAML text.
func validate(t *testing.T, s *jsonschema.Schema, text string) error {
	t.Helper()
	for decoder := yaml.NewDecoder(strings.NewReader(text)); ; {
		var value any
		if err := decoder.Decode(&value); err != nil {
			return nil
		}
		plain, err := json.Marshal(value)
		if err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		document, err := jsonschema.UnmarshalJSON(strings.NewReader(string(plain)))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(document); err != nil {
			return err
		}
	}
}

// block is a block of YAML in the documentation.
var block = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// texts returns all files and documented blocks of the project that are YAML, by their names.
func texts(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{"full": full}
	for _, dir := range []string{"examples", "docs", "test", "internal"} {
		err := filepath.WalkDir("../../../"+dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !slices.Contains([]string{".yaml", ".yml", ".md"}, filepath.Ext(path)) {
				return err
			}
			text, err := os.ReadFile(path)
			if filepath.Ext(path) != ".md" {
				all[path] = string(text)
				return err
			}
			for _, found := range block.FindAllStringSubmatch(string(text), -1) {
				all[path+": "+found[1]] = found[1]
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// TestSchemaAcceptsWhatReadAccepts validates every declaration of the examples, of the
// documentation and of the tests.
func TestSchemaAcceptsWhatReadAccepts(t *testing.T) {
	s, declarations := compiled(t), 0
	for name, text := range texts(t) {
		if _, err := file.Read([]file.Input{{Name: "f", Text: []byte(text)}}); err != nil || text == "" {
			continue
		}
		declarations++
		if err := validate(t, s, text); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if declarations < 20 {
		t.Errorf("only %d declarations found", declarations)
	}
}

// TestSchemaRefusesWhatReadRefuses has files with unknown keys, wrong words and values of a wrong
// form.
func TestSchemaRefusesWhatReadRefuses(t *testing.T) {
	s := compiled(t)
	for _, text := range []string{
		"network: {}",
		"- a",
		"name: [a]",
		"networks: [web]",
		"networks: {web: {mtuu: 1500}}",
		"networks: {web: {driver: brigde}}",
		"networks: {web: {vlan: 70000}}",
		"networks: {web: {mtu: -1}}",
		"networks: {web: {internal: yes}}",
		"networks: {web: {subnet: {a: b}}}",
		"networks: {web: {peer: [{address: 192.0.2.2, port: 1}]}}",
		"networks: {web: {peer: [{address: 192.0.2.2, endpoint: [{adress: a}]}]}}",
		"attachments: [word]",
		"attachments: [{network: web}]",
		"attachments: [{sandbox: x}]",
		"attachments: [{sandbox: x, network: web, device: eth0}]",
		"attachments: [{sandbox: x, network: web, colour: red}]",
		"attachments: [{sandbox: x, network: web, dhcp: maybe}]",
		"attachments: [{sandbox: x, network: web, route: {too: 10.0.0.0/8}}]",
		"attachments: [{sandbox: x, network: web, publish: [80]}]",
		"attachments: [{sandbox: x, network: web, publish: [{published: 80}]}]",
		"attachments: [{sandbox: x, network: web, publish: [{published: 0, target: 80}]}]",
		"attachments: [{sandbox: x, network: web, publish: [{published: 80-a, target: 80}]}]",
		"attachments: [{sandbox: x, network: web, publish: [{published: 80, target: 80, via: magic}]}]",
		"attachments: [{sandbox: x, network: web, publish: [{published: 80, target: 80, promise: speed}]}]",
		"attachments: [{sandbox: x, network: web, publish: [{published: 80, target: 80, mode: host}]}]",
		"services: [a]",
		"services: {a: {}}",
		"services: {a: {address: 192.0.2.1, port: http}}",
		"services: {a: {address: 192.0.2.1, port: 80, scheduler: fair}}",
		"services: {a: {address: 192.0.2.1, port: 80, forward: fast}}",
		"services: {a: {address: 192.0.2.1, port: 80, plane: magic}}",
		"services: {a: {address: 192.0.2.1, port: 80, source-nat: yes}}",
		"services: {a: {address: 192.0.2.1, port: 80, drain: 5}}",
		"services: {a: {address: 192.0.2.1, port: 80, drain: soon}}",
		"services: {a: {address: 192.0.2.1, port: 80, quorum: two}}",
		"services: {a: {address: 192.0.2.1, port: 80, check: icmp}}",
		"services: {a: {address: 192.0.2.1, port: 80, check: {type: icmp}}}",
		"services: {a: {address: 192.0.2.1, port: 80, check: {type: tcp, typo: x}}}",
		"services: {a: {address: 192.0.2.1, port: 80, check: {type: http, port: 70000}}}",
		"services: {a: {address: 192.0.2.1, port: 80, check: {type: http, initial: maybe}}}",
		"services: {a: {address: 192.0.2.1, port: 80, reals: [{address: 10.0.0.2, state: asleep}]}}",
		"services: {a: {address: 192.0.2.1, port: 80, reals: [{address: 10.0.0.2, weight: many}]}}",
		"services: {a: {address: 192.0.2.1, port: 80, cluster: yes}}",
		"services: {a: {address: {virtual: 192.0.2.10/24, holds: 1s}, port: 80}}",
		"addresses: [{virtual: 192.0.2.10/24}]",
		"cluster: {gatway: {}}",
		"cluster: {gateway: {entryPoints: {}}}",
		"gateway: {}",
		"gateway: {entryPoints: {web: {address: ':80'}}, log: {level: debug}}",
		"gateway: {entryPoints: {web: {address: ':80'}}, providers: {file: {filename: a}}}",
		"gateway: {entryPoints: {web: {adress: ':80'}}}",
		"gateway: {entryPoints: {web: {address: ':80', http: {redirections: {entryPoint: {too: a}}}}}}",
		"gateway: {entryPoints: {web: {address: ':80'}}, accessLog: {format: xml}}",
		"gateway: {entryPoints: {web: {address: ':80'}}, core: {defaultRuleSyntax: v4}}",
		"gateway: {entryPoints: {web: {address: ':80'}}, providers: {docker: {labelScope: all}}}",
		"gateway: {entryPoints: {web: {address: ':80'}}, http: {router: {}}}",
		"gateway: {entryPoints: {web: {address: ':80'}}, http: {routers: {a: {priority: high}}}}",
		"gateway: {entryPoints: {web: {address: ':80'}}, http: {middlewares: {a: {retry: {wait: 1s}}}}}",
		"gateway: {entryPoints: {web: {address: ':80'}}, http: {middlewares: {a: {retry: {initialInterval: soon}}}}}",
		"gateway: {entryPoints: {web: {address: ':80'}}, http: {middlewares: {a: {}}}}",
		"gateway: {entryPoints: {web: {address: ':80'}}, " +
			"http: {middlewares: {a: {addPrefix: {prefix: /a}, compress: {}}}}}",
		"gateway: {entryPoints: {web: {address: ':80'}}, http: {services: {a: {loadBalancer: {server: 1}}}}}",
		"gateway: {entryPoints: {web: {address: ':80'}}, " +
			"http: {services: {a: {loadBalancer: {servers: [{url: 'http://a', down: x}]}}}}}",
		"gateway: {entryPoints: {web: {address: ':80'}}, tls: {options: {a: {sniStrict: maybe}}}}",
		"gateway: {entryPoints: {web: {address: ':80'}}, acme: {}}",
	} {
		if _, err := file.Read([]file.Input{{Name: "f", Text: []byte(text)}}); err == nil {
			t.Errorf("Read accepts %s", text)
		}
		if err := validate(t, s, text); err == nil {
			t.Errorf("the schema accepts %s", text)
		}
	}
}

// TestSchemaDescribesEveryField checks that every field has a description, and that every
// reference has a definition.
func TestSchemaDescribesEveryField(t *testing.T) {
	root, fields := file.Schema(), 0
	var walk func(at string, s schema.Schema)
	walk = func(at string, s schema.Schema) {
		if name, refers := strings.CutPrefix(s.Ref, "#/$defs/"); refers {
			if _, known := root.Defs[name]; !known {
				t.Errorf("%s refers to %s, which is not defined", at, s.Ref)
			}
		}
		for name, field := range s.Properties {
			if fields++; field.Description == "" {
				t.Errorf("%s.%s has no description", at, name)
			}
			walk(at+"."+name, field)
		}
		for _, form := range slices.Concat(s.AnyOf, s.OneOf) {
			walk(at, form)
		}
		for _, part := range []*schema.Schema{s.Items, s.Values} {
			if part != nil {
				walk(at+"[]", *part)
			}
		}
	}
	walk("", root)
	for _, name := range slices.Sorted(maps.Keys(root.Defs)) {
		walk(name, root.Defs[name])
	}
	if fields < 500 {
		t.Errorf("only %d fields", fields)
	}
}

// TestWrittenFieldsAreInTheSchema validates what Write and WriteJSON write.
func TestWrittenFieldsAreInTheSchema(t *testing.T) {
	s := compiled(t)
	for name, text := range texts(t) {
		set, err := file.Read([]file.Input{{Name: "f", Text: []byte(text)}})
		if err != nil {
			continue
		}
		var yaml, json strings.Builder
		if err := file.Write(&yaml, set.Spec); err != nil {
			t.Fatal(err)
		}
		if err := file.WriteJSON(&json, set.Spec); err != nil {
			t.Fatal(err)
		}
		for _, written := range []string{yaml.String(), json.String()} {
			if err := validate(t, s, written); err != nil {
				t.Errorf("%s: %v\n%s", name, err, written)
			}
		}
	}
}
