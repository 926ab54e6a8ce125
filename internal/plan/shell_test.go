package plan_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"fairlead/internal/plan"
)

// objects has one object of every kind. TestPlansArePastedSafely fails if a kind
// is missing.
var objects = []plan.Object{
	plan.Uplinks{}, plan.Ingress{}, plan.Outbound{}, plan.LocalClients{}, plan.EBPFMapping{}, plan.BindHooks{},
	plan.Grant{}, plan.SubLink{}, plan.WireGuard{}, plan.WireGuardPeer{},
	plan.Device{}, plan.IPoIB{}, plan.FastPath{}, plan.LocalRealEgress{}, plan.IPVSService{}, plan.LocalRoute{},
	plan.IPVSTable{}, plan.IPVSMember{},
	plan.Link{}, plan.Address{}, plan.Route{}, plan.Sysctl{}, plan.Table{}, plan.NFTMapping{}, plan.Member{},
	plan.ServiceTable{}, plan.NFTService{},
	plan.StaleLink{}, plan.Shaper{}, plan.EBPFService{}, plan.Tunnel{}, plan.Forwarding{}, plan.Neighbor{},
	plan.NoTrack{}, plan.Flowtable{}, plan.FlowtableLink{}, plan.Listener{},
	plan.Reservation{}, plan.VirtualAddress{}, plan.Guard{}, plan.FilterChain{}, plan.Proxied{},
	plan.OverlayPrograms{}, plan.OverlayStation{},
}

// attacks are the hostile name without and with an additional line.
var attacks = []string{attack, attack + "\n:>canary\n"}

// checked are fields that users cannot fill with arbitrary text: hardware
// addresses, which the model validates, and words that Fairlead chooses.
var checked = []string{"MAC", "PeerMAC", "Set", "Value"}

// attack is a name that runs a command if it is quoted wrongly.
const attack = "x$(:>canary);:>canary;`:>canary`'$(:>canary)';:>canary #\"\\"

// TestPlansArePastedSafely pastes the commands of every object, with hostile
// names in it, into shells, and verifies that the shells run none of the names.
func TestPlansArePastedSafely(t *testing.T) {
	all := kinds(t)
	for i, o := range slices.Concat(objects, objects) {
		v := reflect.New(reflect.TypeOf(o)).Elem()
		name := v.Type().Name()
		all = slices.DeleteFunc(all, func(kind string) bool { return kind == name })
		for j := range v.NumField() {
			if f := v.Type().Field(j); f.Type == reflect.TypeFor[string]() && f.IsExported() &&
				!slices.Contains(checked, f.Name) {
				v.Field(j).SetString(attacks[i/len(objects)])
			}
		}
		hostile := v.Interface().(plan.Object)
		for _, lines := range [][]string{hostile.Add(), hostile.Del()} {
			for _, shell := range []string{"sh", "bash"} {
				paste(t, name, shell, strings.Join(lines, "\n"))
			}
		}
	}
	if len(all) > 0 {
		t.Errorf("add to objects: %v", all)
	}
}

// paste runs a text in a shell that finds only its built-in commands.
func paste(t *testing.T, name, shell, text string) {
	t.Helper()
	program, err := exec.LookPath(shell)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Dir, cmd.Env, cmd.Stdin = t.TempDir(), []string{"PATH=/nowhere"}, strings.NewReader(text)
	said, _ := cmd.CombinedOutput() // no command is found
	if _, err := os.Stat(filepath.Join(cmd.Dir, "canary")); err == nil {
		t.Errorf("%s: %s runs the text of a name:\n%s\n%s", name, shell, text, said)
	}
	substitutes := strings.Contains(text, "<(") && shell == "sh" // which only bash has
	broken := func(word string) bool { return strings.Contains(string(said), word) }
	if !substitutes && slices.ContainsFunc([]string{"yntax error", "nterminated", "unexpected EOF"}, broken) {
		t.Errorf("%s: %s cannot parse\n%s\n%s", name, shell, text, said)
	}
}

// kinds returns the names of the package's types that are objects.
func kinds(t *testing.T) (names []string) {
	t.Helper()
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range sources {
		file, err := parser.ParseFile(token.NewFileSet(), source, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv == nil || f.Name.Name != "Add" || len(f.Type.Params.List) > 0 {
				continue
			}
			if of, ok := f.Recv.List[0].Type.(*ast.Ident); ok {
				names = append(names, of.Name)
			}
		}
	}
	if len(names) < 30 {
		t.Fatalf("found only the objects %v", names)
	}
	return names
}
