// Files that tools handed over. The bridge requires both halves of the login, which a
// browser does not send by itself, so pictures and downloads are fetched here.

import { download } from './http.js';

const PICTURE = /^image\/(png|jpeg|gif|webp)$/; // only types that cannot contain a script
const pictures = new Map(); // promises of object URLs, by address

// isFile reports whether an address is that of a session's file.
export function isFile(url) {
  return url.origin === location.origin && url.pathname.startsWith('/v1/agents/') && url.pathname.includes('/artifacts/');
}

// isPicture reports whether a media type is shown as a picture.
export function isPicture(type) { return PICTURE.test(type ?? ''); }

// picture loads a file into an img when it comes near the visible area; it calls lost on
// failure.
export function picture(img, address, lost) {
  const seen = new IntersectionObserver(async (entries) => {
    if (!entries.some((e) => e.isIntersecting)) return;
    seen.disconnect();
    try {
      img.src = await objectURL(address);
    } catch {
      lost();
    }
  }, { rootMargin: '400px' });
  img.addEventListener('error', lost);
  seen.observe(img);
}

// forgetPictures frees the memory of a session's pictures.
export function forgetPictures() {
  for (const url of pictures.values()) url.then(URL.revokeObjectURL, () => {});
  pictures.clear();
}

function objectURL(address) {
  if (!pictures.has(address)) {
    pictures.set(address, download(address).then((blob) => {
      if (isPicture(blob.type)) return URL.createObjectURL(blob);
      throw new Error(`${address} is not a picture`);
    }));
  }
  return pictures.get(address);
}

// openFiles makes links to files fetch them: a picture is opened, everything else is
// saved. An object URL belongs to this origin, so only pictures are opened by one.
export function openFiles(app) {
  document.addEventListener('click', async (event) => {
    const link = event.target.closest?.('a[href]');
    if (!link || !isFile(link)) return;
    event.preventDefault();
    try {
      const blob = await download(link.href);
      const open = link.target === '_blank' && isPicture(blob.type);
      const a = document.createElement('a');
      a.href = URL.createObjectURL(open ? blob : blob.slice(0, blob.size, 'application/octet-stream'));
      if (open) [a.target, a.rel] = ['_blank', 'noopener'];
      else a.download = link.download || nameOf(link);
      a.click();
      setTimeout(() => URL.revokeObjectURL(a.href), 60_000); // the browser has read it by then
    } catch (e) {
      app.announce(`Could not fetch the file. ${e.message}`, true);
    }
  });
}

function nameOf(link) {
  const last = new URLSearchParams(link.search).get('name') ?? link.pathname;
  try {
    return decodeURIComponent(last.split('/').pop());
  } catch {
    return 'file';
  }
}
