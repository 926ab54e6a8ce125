package release_test

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// files returns the files below a directory with their modes, sorted. All must belong to root.
func files(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if st := info.Sys().(*syscall.Stat_t); st.Uid != 0 || st.Gid != 0 {
			t.Errorf("%s belongs to user %d and group %d", path, st.Uid, st.Gid)
		}
		name, err := filepath.Rel(dir, path)
		all = append(all, fmt.Sprintf("%s %04o", name, info.Mode().Perm()))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// manPages returns what files returns for the man pages in a directory of an artefact.
func manPages(t *testing.T, in string) (all []string) {
	t.Helper()
	pages, err := filepath.Glob("../../docs/man/*.8")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no man pages: %v", err)
	}
	for _, page := range pages {
		all = append(all, filepath.Join(in, filepath.Base(page))+".gz 0644")
	}
	return all
}

// common are the files of all packages but the man pages.
var common = []string{
	"usr/bin/fairlead 0755",
	"usr/share/bash-completion/completions/fairlead 0644",
	"usr/share/fish/vendor_completions.d/fairlead.fish 0644",
	"usr/share/zsh/site-functions/_fairlead 0644",
}

// units are the systemd units.
var units = []string{
	"usr/lib/systemd/system/fairlead-docker.socket 0644",
	"usr/lib/systemd/system/fairlead.service 0644",
	"usr/lib/systemd/system/fairlead.socket 0644",
}

// TestPackages unpacks the packages of both architectures, each with the programs that Debian has for its format, and
// compares their files with the layout of the distribution.
func TestPackages(t *testing.T) {
	dist, version := artefacts(t)
	for name, p := range map[string]struct {
		unpack string
		want   []string
	}{
		"fairlead_" + version + "-1_%s.deb": {`dpkg-deb -x "$0" .`, slices.Concat(common, units,
			[]string{"etc/default/fairlead 0644", "usr/share/doc/fairlead/copyright 0644"})},
		"fairlead-" + version + "-1.%s.rpm": {`rpm2cpio "$0" | cpio --quiet --no-absolute-filenames -idm`,
			slices.Concat(common, units, []string{"etc/sysconfig/fairlead 0644", "usr/share/licenses/fairlead/LICENSE 0644",
				"usr/share/licenses/fairlead/NOTICE 0644"})},
		// apk has no field for its scripts and description: they are files of the archive.
		"fairlead_" + version + "-r1_%s.apk": {`tar --warning=no-unknown-keyword -xzf "$0"`, slices.Concat(common,
			[]string{"etc/conf.d/fairlead 0644", "etc/init.d/fairlead 0755",
				"usr/share/licenses/fairlead/COPYRIGHT 0644", ".PKGINFO 0600", ".post-deinstall 0755",
				".post-install 0755", ".post-upgrade 0755", ".pre-deinstall 0755"})},
	} {
		want := append(p.want, manPages(t, "usr/share/man/man8")...)
		slices.Sort(want)
		other := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}
		for goarch, arch := range other {
			if strings.HasSuffix(name, ".deb") {
				arch = goarch
			}
			file, to := filepath.Join(dist, fmt.Sprintf(name, arch)), t.TempDir()
			run(t, to, "sh", "-ec", p.unpack, file)
			if diff := cmp.Diff(want, files(t, to)); diff != "" {
				t.Errorf("%s: want (-), has (+):\n%s", filepath.Base(file), diff)
			}
			if got := architecture(t, to+"/usr/bin/fairlead"); got != goarch {
				t.Errorf("%s: the binary is for %s", filepath.Base(file), got)
			}
		}
	}
}

// architecture returns the GOARCH of a binary.
func architecture(t *testing.T, binary string) string {
	t.Helper()
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range info.Settings {
		if s.Key == "GOARCH" {
			return s.Value
		}
	}
	return ""
}

// unpacked returns the directory that an archive of an architecture has.
func unpacked(t *testing.T, arch string) string {
	t.Helper()
	dist, version := artefacts(t)
	name, to := "fairlead-"+version+"-linux-"+arch, t.TempDir()
	run(t, to, "tar", "-xzf", filepath.Join(dist, name+".tar.gz"))
	return filepath.Join(to, name)
}

// TestArchive compares the files of the archive for machines without a package manager.
func TestArchive(t *testing.T) {
	want := append(manPages(t, "man"), "LICENSE 0644", "NOTICE 0644", "completion/bash 0644", "completion/fish 0644",
		"completion/zsh 0644", "default/fairlead 0644", "fairlead 0755", "openrc/fairlead 0755",
		"systemd/fairlead-docker.socket 0644", "systemd/fairlead.service 0644", "systemd/fairlead.socket 0644")
	slices.Sort(want)
	for _, arch := range []string{"amd64", "arm64"} {
		dir := unpacked(t, arch)
		if diff := cmp.Diff(want, files(t, dir)); diff != "" {
			t.Errorf("the archive for %s: want (-), has (+):\n%s", arch, diff)
		}
		if got := architecture(t, dir+"/fairlead"); got != arch {
			t.Errorf("the archive for %s: the binary is for %s", arch, got)
		}
	}
}

// TestSBOM compares the modules of the SBOMs with those that `go version -m` prints for the binaries.
func TestSBOM(t *testing.T) {
	dist, version := artefacts(t)
	for _, arch := range []string{"amd64", "arm64"} {
		info, err := buildinfo.ReadFile(filepath.Join(unpacked(t, arch), "fairlead"))
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"std " + info.GoVersion}
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			want = append(want, m.Path+" "+m.Version)
		}
		text, err := os.ReadFile(filepath.Join(dist, "fairlead-"+version+"-linux-"+arch+".cdx.json"))
		if err != nil {
			t.Fatal(err)
		}
		var bom struct {
			BOMFormat string
			Metadata  struct {
				Component struct{ Name, Version string }
			}
			Components []struct{ Name, Version string }
		}
		if err := json.Unmarshal(text, &bom); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range bom.Components {
			got = append(got, c.Name+" "+c.Version)
		}
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" || len(want) < 50 {
			t.Errorf("%s: modules of the binary (-), of the SBOM (+):\n%s", arch, diff)
		}
		if m := bom.Metadata.Component; bom.BOMFormat != "CycloneDX" || m.Name != "fairlead" || m.Version != version {
			t.Errorf("%s: the SBOM (%s) is about %v", arch, bom.BOMFormat, m)
		}
	}
}

// TestImage follows the digests of the image from the index to the layers. test/gateway runs an image.
func TestImage(t *testing.T) {
	dist, version := artefacts(t)
	to := t.TempDir()
	run(t, to, "tar", "-xf", filepath.Join(dist, "fairlead-"+version+"-image.tar"))
	type descriptor struct {
		Digest      string
		Size        int
		Annotations map[string]string
		Platform    struct{ Architecture, OS string }
	}
	var index, list struct{ Manifests []descriptor }
	read := func(name string, into any) {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(to, name))
		if err == nil {
			err = json.Unmarshal(text, into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	blob := func(d descriptor) string {
		name := "blobs/" + strings.ReplaceAll(d.Digest, ":", "/")
		if s := sums(t, filepath.Join(to, "blobs/sha256")); s[filepath.Base(name)] != filepath.Base(name) {
			t.Errorf("%s has the checksum %s", name, s[filepath.Base(name)])
		}
		if info, err := os.Stat(filepath.Join(to, name)); err != nil || int(info.Size()) != d.Size {
			t.Errorf("%s has another size than %d: %v", name, d.Size, err)
		}
		return name
	}
	read("index.json", &index)
	read(blob(index.Manifests[0]), &list)
	if got := index.Manifests[0].Annotations["org.opencontainers.image.ref.name"]; got != version {
		t.Errorf("the image's tag is %q", got)
	}
	var platforms []string
	for _, m := range list.Manifests {
		var manifest struct {
			Config descriptor
			Layers []descriptor
		}
		read(blob(m), &manifest)
		var config struct{ Architecture, OS string }
		read(blob(manifest.Config), &config)
		layer := blob(manifest.Layers[0])
		platforms = append(platforms, m.Platform.OS+"/"+m.Platform.Architecture)
		root := t.TempDir()
		run(t, root, "tar", "-xf", filepath.Join(to, layer), "./fairlead")
		if got := architecture(t, root+"/fairlead"); got != m.Platform.Architecture || got != config.Architecture {
			t.Errorf("the image for %v has a configuration for %v and a binary for %s", m.Platform, config, got)
		}
	}
	if want := []string{"linux/amd64", "linux/arm64"}; !slices.Equal(platforms, want) {
		t.Errorf("the image is for %v", platforms)
	}
}

// TestARM64 runs what needs no kernel of the binary for arm64 in an emulator, and compares the output with that of the
// other binary.
func TestARM64(t *testing.T) {
	examples, err := filepath.Abs("../../internal/frontend/importer/testdata")
	if err != nil {
		t.Fatal(err)
	}
	results := map[string]string{}
	for _, arch := range []string{"amd64", "arm64"} {
		program := []string{filepath.Join(unpacked(t, arch), "fairlead")}
		if arch != host {
			program = append([]string{"qemu-aarch64"}, program...)
		}
		var version struct{ Version, Commit, Platform string }
		if err := json.Unmarshal([]byte(run(t, "", program[0], append(program[1:], "version", "-o", "json")...)),
			&version); err != nil {
			t.Fatal(err)
		}
		_, want := artefacts(t)
		if version.Version != want || version.Commit != commit || version.Platform != "linux/"+arch {
			t.Errorf("the binary for %s is %+v", arch, version)
		}
		script := `set -e
"$@" docs man man; cat man/*
"$@" completion bash
"$@" service import keepalived "$0/keepalived.conf"
"$@" service import ipvsadm "$0/rules.txt"`
		results[arch] = run(t, t.TempDir(), "sh", append([]string{"-c", script, examples}, program...)...)
	}
	if diff := cmp.Diff(strings.Split(results["amd64"], "\n"), strings.Split(results["arm64"], "\n")); diff != "" {
		t.Errorf("amd64 (-) and arm64 (+) differ:\n%s", diff)
	}
}
