// Copyright The memslice Authors
//
// Licensed under the Apache License, Version 2.0 (the "License");
// you may not use this file except in compliance with the License.
// You may obtain a copy of the License at
//
//     http://www.apache.org/licenses/LICENSE-2.0
//
// Unless required by applicable law or agreed to in writing, software
// distributed under the License is distributed on an "AS IS" BASIS,
// WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
// See the License for the specific language governing permissions and
// limitations under the License.

package cli

import (
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/memslice/memslice/e2e/localcluster/internal/image"
)

// contents are the flags that say what is in an image.
type contents struct {
	add, elf, lib, symlink, dir, busybox []string
}

// NewMkimage returns the command.
func NewMkimage() *cobra.Command {
	var spec image.Spec
	var in contents
	var output string
	cmd := &cobra.Command{
		Use:   "mkimage --tag NAME --output FILE.tar",
		Short: "Assemble a container image from files of this machine",
		Long: `mkimage writes a container image, of one layer, as an archive that "docker load",
"ctr images import" and "localcluster load-image" read. The same files give the
same image, byte for byte: they are dated to 1970 and belong to root.`,
		Example: `  mkimage --tag docker.io/memslice/demo:dev --output demo.tar \
    --busybox /bin/busybox --dir /tmp:1777 --cmd sh

  mkimage --tag docker.io/memslice/memslice:dev --output memslice.tar \
    --elf _output/bin/memslice-kubelet-plugin:/usr/bin/memslice-kubelet-plugin \
    --lib libdl.so.2 --lib libpthread.so.0 --lib librt.so.1 \
    --add _output/bin/nvidia-cdi-hook:/usr/bin/nvidia-cdi-hook:0755 \
    --entrypoint /usr/bin/memslice-kubelet-plugin`,
		Args:         cobra.NoArgs,
		SilenceUsage: true,
	}
	f := cmd.Flags()
	f.StringVar(&spec.Tag, "tag", "", "full name of the image, such as docker.io/memslice/demo:dev")
	f.StringVarP(&output, "output", "o", "", "archive to write")
	f.StringArrayVar(&spec.Entrypoint, "entrypoint", nil, "word of the entry point; repeat for more")
	f.StringArrayVar(&spec.Cmd, "cmd", nil, "word of the default command; repeat for more")
	f.StringArrayVar(&spec.Env, "env", nil, "NAME=value in the environment; repeatable")
	f.StringVar(&spec.User, "user", "", "user, and group after a colon, to run as (default root)")
	f.StringArrayVar(&in.add, "add", nil, "SRC:DST[:MODE] file, or folder with all below it; repeatable")
	f.StringArrayVar(&in.elf, "elf", nil, "SRC:DST program with its loader and shared libraries; repeatable")
	f.StringArrayVar(&in.lib, "lib", nil, "name of a shared library that programs of --elf open at run time, such as libdl.so.2; repeatable")
	f.StringArrayVar(&in.symlink, "symlink", nil, "TARGET:LINK symlink; repeatable")
	f.StringArrayVar(&in.dir, "dir", nil, "PATH[:MODE] empty folder; repeatable")
	f.StringArrayVar(&in.busybox, "busybox", nil, "busybox, installed as /bin/busybox with a link for each of its commands")
	must(cmd.MarkFlagRequired("tag"))
	must(cmd.MarkFlagRequired("output"))
	must(cmd.MarkFlagFilename("output", "tar"))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := in.fill(&spec); err != nil {
			return err
		}
		return spec.Write(output)
	}
	return cmd
}

// fill adds what the flags say to the spec.
func (in contents) fill(spec *image.Spec) error {
	libraries := image.Libraries{Root: "/"}
	for _, source := range in.busybox {
		files, links, err := libraries.Busybox(source)
		if err != nil {
			return err
		}
		spec.Files, spec.Links = append(spec.Files, files...), append(spec.Links, links...)
	}
	for _, value := range in.elf {
		parts, err := split("elf", value, 2, 2)
		if err != nil {
			return err
		}
		files, err := libraries.Closure(parts[0], parts[1], in.lib)
		if err != nil {
			return err
		}
		spec.Files = append(spec.Files, files...)
	}
	for _, value := range in.add {
		parts, err := split("add", value, 2, 3)
		if err != nil {
			return err
		}
		m, err := mode("add", value, parts[2:], 0)
		if err != nil {
			return err
		}
		spec.Files = append(spec.Files, image.File{Source: parts[0], Path: parts[1], Mode: m})
	}
	for _, value := range in.symlink {
		parts, err := split("symlink", value, 2, 2)
		if err != nil {
			return err
		}
		spec.Links = append(spec.Links, image.Link{Target: parts[0], Path: parts[1]})
	}
	for _, value := range in.dir {
		parts, err := split("dir", value, 1, 2)
		if err != nil {
			return err
		}
		m, err := mode("dir", value, parts[1:], 0o755)
		if err != nil {
			return err
		}
		spec.Dirs = append(spec.Dirs, image.Dir{Path: path.Clean(parts[0]), Mode: m})
	}
	return nil
}

func split(flag, value string, least, most int) ([]string, error) {
	parts := strings.Split(value, ":")
	if len(parts) < least || len(parts) > most || parts[0] == "" {
		return nil, fmt.Errorf("--%s=%s: has %d parts between colons, see --help for which it needs", flag, value, len(parts))
	}
	return parts, nil
}

// mode reads an octal mode, if there is one.
func mode(flag, value string, octal []string, otherwise fs.FileMode) (fs.FileMode, error) {
	if len(octal) == 0 {
		return otherwise, nil
	}
	n, err := strconv.ParseUint(octal[0], 8, 12)
	if err != nil {
		return 0, fmt.Errorf("--%s=%s: mode %q must be octal, such as 0755: %w", flag, value, octal[0], err)
	}
	m := fs.FileMode(n & 0o777)
	if n&0o1000 != 0 {
		m |= fs.ModeSticky
	}
	return m, nil
}
