# For suites that run on a mounted, mirrored group: sourced with `spindle` set to the binary.
# Sets `work`, a directory with a short name (sockets have no others), and `mount`, the group `data`
# mounted in it. All of it is gone when the shell ends.

[[ -w /dev/fuse ]] || { echo "skipped: no /dev/fuse" && exit 0; }
[[ $(id -u) == 0 ]] || { echo "skipped: mounting needs root" && exit 0; }

work=$(mktemp -d /tmp/spindle-suite-XXXXXX)
mount=$work/mount
export SPINDLE_RUNTIME_DIR=$work/run SPINDLE_DISKS="$work/*.disk"

# What a suite started, and is to be ended before the mount: its own to define.
end_started() { :; }

clean_up() {
    end_started
    "$spindle" umount "$mount" >/dev/null 2>&1 || umount -l "$mount" 2>/dev/null
    rm -rf --one-file-system "$work"
}
trap clean_up EXIT

# mount_group SIZE: the group on two disks of that size.
mount_group() {
    "$spindle" group create data --failgroup "left=$work/a.disk:$1" \
        --failgroup "right=$work/b.disk:$1" >/dev/null &&
        mkdir "$mount" && "$spindle" mount data "$mount" >/dev/null
}

# Ends the mount; fails where the group has contradictions then.
close_group() {
    "$spindle" umount "$mount" || return 1
    [[ $("$spindle" group check data --json | tr -d ' \n') == *'"contradictions":[]'* ]] || {
        echo "FAILED  the group has contradictions" && return 1
    }
}

# judge MOUNTED PLAIN: the sorted names in the file MOUNTED that are not in the file PLAIN are ours.
judge() {
    local ours
    comm -12 "$1" "$2" | sed 's/^/fails on a plain directory too: /'
    ours=$(comm -23 "$1" "$2")
    [[ -z $ours ]] || { sed 's/^/FAILED  on the mount only: /' <<<"$ours" && return 1; }
}
